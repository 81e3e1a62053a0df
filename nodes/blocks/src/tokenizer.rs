//! Byte-level BPE tokenisers, from a `tokenizer.json` or from the settings of a GGUF file.

mod byte_level;
mod gguf;
mod guarded;

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use mstar_contract::Detokenizer;

pub use gguf::GgufVocabulary;

/// A byte-level BPE tokeniser: text to tokens, tokens to bytes.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The bytes of each token, nothing for special ones.
    pieces: Vec<Box<[u8]>>,
    /// Finds the names of special tokens.
    special: AhoCorasick,
    /// The same without special tokens, made when somebody first writes one: it takes as much memory again.
    words: OnceLock<tokenizers::Tokenizer>,
}

/// A tokeniser could not be built or could not read a text.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer: {0}")]
pub struct TokenizerError(String);

// --- impl Tokenizer ---

impl Tokenizer {
    /// Reads the contents of a `tokenizer.json`.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::around(tokenizers::Tokenizer::from_bytes(json).map_err(TokenizerError::from)?)
    }

    /// Builds the tokeniser that a GGUF file describes.
    pub fn from_gguf(vocabulary: GgufVocabulary<'_>) -> Result<Self, TokenizerError> {
        Self::around(vocabulary.build()?)
    }

    /// Returns the tokens of a text; special tokens written in it are recognised, none is added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false).map_err(TokenizerError::from)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the text of tokens; bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.bytes(token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the token of this exact text, such as `<|endoftext|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the text of a token as the vocabulary has it; for special tokens their name.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// Returns the number of tokens, special ones included.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the bytes of its longest token: a text of n times as many has more than n tokens.
    pub fn longest_token(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).max().unwrap_or(0)
    }

    /// Returns whether it knows no token.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn around(inner: tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let vocabulary = inner.get_vocab(true);
        let added = inner.get_added_tokens_decoder();
        let count = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        if count > 1 << 24 {
            return Err(TokenizerError(format!("token id {} is beyond all reason", count - 1)));
        }
        let mut pieces = vec![Box::default(); count];
        for (text, id) in vocabulary {
            pieces[id as usize] = match added.get(&id) {
                Some(token) if token.special => Box::default(),
                Some(token) => token.content.as_bytes().into(),
                None => byte_level::bytes(&text),
            };
        }
        let names = added.values().filter(|token| token.special && !token.content.is_empty());
        let mut finder = AhoCorasick::builder();
        let finder = finder.match_kind(MatchKind::LeftmostLongest).build(names.map(|token| &token.content));
        let special = finder.map_err(|e| TokenizerError(e.to_string()))?;
        Ok(Self { inner, pieces, special, words: OnceLock::new() })
    }
}

impl Detokenizer for Tokenizer {
    fn bytes(&self, token: u32) -> &[u8] {
        self.pieces.get(token as usize).map_or(&[], |piece| piece)
    }
}

impl From<tokenizers::Error> for TokenizerError {
    fn from(error: tokenizers::Error) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of all bytes, a few merges and two special tokens.
    pub(super) fn small() -> Tokenizer {
        let mut tokens = vec!["<|end|>".to_owned(), "<|go|>".to_owned()];
        tokens.extend((0..=255u8).map(|b| byte_level::character(b).to_string()));
        tokens.extend(["Ġa".to_owned(), "he".to_owned(), "12".to_owned()]);
        let kinds: Vec<i64> = (0..tokens.len()).map(|i| if i < 2 { 3 } else { 1 }).collect();
        let merges = vec!["Ġ a".to_owned(), "h e".to_owned(), "1 2".to_owned()];
        Tokenizer::from_gguf(GgufVocabulary { tokens: &tokens, kinds: &kinds, merges: &merges, pre: "smollm" }).unwrap()
    }

    #[test]
    fn tokens_of_any_text_decode_to_it() {
        let tokenizer = small();
        for text in ["", "he a", "naïve 你好 🙂\r\n\t x  y", "12 1 2"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
    }

    #[test]
    fn merges_apply_but_smollm_keeps_digits_apart() {
        let tokenizer = small();
        let names = |text: &str| -> Vec<String> {
            tokenizer.encode(text).unwrap().into_iter().filter_map(|t| tokenizer.name(t)).collect()
        };
        assert_eq!(names("he a"), ["he", "Ġa"]);
        assert_eq!(names("12"), ["1", "2"]);
    }

    #[test]
    fn special_tokens_are_read_and_are_no_text() {
        let tokenizer = small();
        let ids = tokenizer.encode("<|go|>he<|end|>").unwrap();
        assert_eq!((ids[0], ids[2]), (1, 0));
        assert_eq!(tokenizer.decode(&ids), "he");
        assert_eq!(tokenizer.bytes(999_999), b"");
        assert_eq!(tokenizer.id("<|end|>"), Some(0));
    }

    #[test]
    fn a_broken_description_is_an_error() {
        assert!(Tokenizer::from_json(b"{}").is_err());
        let tokens = ["a".to_owned()];
        let bad = GgufVocabulary { tokens: &tokens, kinds: &[1], merges: &["ab".to_owned()], pre: "gpt-2" };
        assert!(Tokenizer::from_gguf(bad).is_err());
        let stranger = GgufVocabulary { tokens: &tokens, kinds: &[1], merges: &[], pre: "klingon" };
        assert!(Tokenizer::from_gguf(stranger).is_err());
    }
}
