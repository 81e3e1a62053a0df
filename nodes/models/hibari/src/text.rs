//! From written text to what the network reads: sentences, spoken words, phoneme ids.

pub mod cutter;
pub mod normalise;
pub mod numbers;
pub mod phonemes;
mod rules;
pub mod vocabulary;

pub use cutter::SentenceCutter;
pub use normalise::{Normaliser, Spoken};
pub use phonemes::{Guess, Reader, Reading};
