//! From spoken words to the ids that the network reads.
//!
//! Known words come from the lexicon and rules of `misaki-rs`, others from a [`Guess`]; what neither can say
//! is handed back.

use std::sync::Arc;

use misaki_rs::fallback::FallbackError;
use misaki_rs::{Fallback, G2P, Language};

use super::Normaliser;
use super::vocabulary;

/// Sounds for words that no lexicon has; `None` when it has no idea either.
pub trait Guess: Send + Sync {
    /// Returns the phonemes of one word.
    fn guess(&self, word: &str) -> Option<String>;
}

/// A sentence as the network reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The phonemes, in the alphabet of [`vocabulary`].
    pub phonemes: String,
    /// Their ids, each part between two zeros: one part, unless there are very many; none when there is nothing to say.
    pub parts: Vec<Vec<u32>>,
    /// What of the sentence has no sound.
    pub unread: String,
}

/// The text front end of the model: writes a sentence out and reads it into phoneme ids.
pub struct Reader {
    normaliser: Normaliser,
    lexicon: G2P,
    guess: Arc<dyn Guess>,
}

/// The most phonemes that the network speaks in one go: twice as many as a long sentence has. Figures and signs can
/// become many more, and the network's memory grows with them.
const MAX_PHONEMES: usize = 480;

struct GuessWord(Arc<dyn Guess>);

// --- impl Reader ---

impl Reader {
    /// Loads the lexicon (some 0.3 s) and compiles the rules; unknown words go to `guess`.
    pub fn new(guess: Arc<dyn Guess>) -> Self {
        let fallback: Box<dyn Fallback> = Box::new(GuessWord(Arc::clone(&guess)));
        Self { normaliser: Normaliser::new(), lexicon: G2P::with_fallback(Language::EnglishUS, Some(fallback)), guess }
    }

    /// Reads a sentence.
    pub fn read(&self, sentence: &str) -> Reading {
        let spoken = self.normaliser.speak(sentence);
        let mut reading = Reading { unread: spoken.unread, ..Reading::default() };
        match self.lexicon.g2p(&spoken.text) {
            Ok((_, tokens)) => {
                for token in &tokens {
                    let sounds = token.phonemes.as_deref().unwrap_or_default();
                    if sounds.is_empty() && token.text.contains(char::is_alphabetic) {
                        reading.unread.push_str(&token.text);
                    }
                    reading.phonemes.push_str(sounds);
                    reading.phonemes.push_str(&token.whitespace);
                }
            }
            Err(_) => self.read_word_by_word(&spoken.text, &mut reading),
        }
        reading.phonemes = vocabulary::keep_known(reading.phonemes.trim(), &mut reading.unread);
        let parts = vocabulary::pieces(&reading.phonemes, MAX_PHONEMES).into_iter().map(vocabulary::ids);
        reading.parts = parts.filter(|ids| !ids.is_empty()).collect();
        reading
    }

    /// Reads a sentence that the lexicon refused as a whole.
    fn read_word_by_word(&self, text: &str, reading: &mut Reading) {
        for word in text.split(' ') {
            match self.guess.guess(word) {
                Some(sounds) => reading.phonemes.extend([sounds.as_str(), " "]),
                None => reading.unread.push_str(word),
            }
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("normaliser", &self.normaliser).finish_non_exhaustive()
    }
}

// --- impl GuessWord ---

impl Fallback for GuessWord {
    /// An empty reading means "no sound": the reader collects such words.
    fn phonemize(&self, word: &str) -> Result<String, FallbackError> {
        let pieces: Vec<String> = word
            .split(|c: char| !(c.is_alphabetic() || c == '\''))
            .filter(|piece| !piece.is_empty())
            .filter_map(|piece| self.0.guess(piece))
            .collect();
        Ok(pieces.join(" "))
    }
}
