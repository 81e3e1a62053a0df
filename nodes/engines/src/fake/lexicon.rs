//! The fake language: tokens, and the bytes of text that each stands for.

use mstar_contract::Detokenizer;

use crate::random;

const PIECES: [&[u8]; 24] = [
    b"",
    b" the",
    b" river",
    " größe".as_bytes(),
    b" sings",
    b".",
    b" of",
    " naïve".as_bytes(),
    b" light",
    b",",
    " 東京".as_bytes(),
    b" and",
    b" stone",
    b"!",
    " café".as_bytes(),
    b" walks",
    b"?",
    " жить".as_bytes(),
    b" seven",
    b"s",
    b" star",
    b"\n",
    // A crab, cut within the character: the second half always follows the first.
    b" \xf0\x9f",
    b"\xa6\x80",
];

/// Tokens of the fake language. Token 0 ends the text; tokens from 1,000 on are words of prompts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lexicon;

// --- impl Lexicon ---

impl Lexicon {
    /// Ends the text.
    pub const END: u32 = 0;
    /// The first half of a character.
    pub const FIRST_HALF: u32 = 22;
    /// The second half of the same character.
    pub const SECOND_HALF: u32 = 23;

    /// Returns the tokens of a prompt: one per word, each a hash of it.
    pub fn tokens(text: &str) -> Vec<u32> {
        let hash = |word: &str| word.bytes().fold(0, |hash, byte| random::mix(hash ^ u64::from(byte)));
        text.split_whitespace().map(|word| 1000 + (hash(word) % 60_000) as u32).collect()
    }

    /// Returns the token that follows `last`, given random bits; about one in 24 ends the text.
    pub fn next(last: Option<u32>, bits: u64) -> u32 {
        if last == Some(Self::FIRST_HALF) { Self::SECOND_HALF } else { (bits % u64::from(Self::SECOND_HALF)) as u32 }
    }
}

impl Detokenizer for Lexicon {
    fn bytes(&self, token: u32) -> &[u8] {
        PIECES.get(token as usize).copied().unwrap_or_default()
    }
}
