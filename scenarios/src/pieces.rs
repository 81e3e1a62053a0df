//! Pieces of models without a server around them, to be timed beside the same piece of another implementation.
//!
//! A piece is loaded once and then asked, a line at a time; whoever asks decides when ours and when theirs runs.

mod layers;
mod llama;
mod whisper;

use mstar_kernels::{Cx, Tensor, ops};
use serde_json::Value;

use crate::error::StoryError;

pub use layers::LayerPieces;
pub use llama::LlamaPieces;
pub use whisper::WhisperPieces;

/// Pieces of a model, ready to be timed.
pub trait Pieces {
    /// Computes what the words ask for and returns how long it took, as JSON.
    fn time(&mut self, words: &[&str]) -> Result<Value, StoryError>;
}

fn wrong(error: impl ToString) -> StoryError {
    StoryError::Answer(error.to_string())
}

/// Reads the whole numbers behind the first word.
fn numbers<const N: usize>(words: &[&str]) -> Result<[usize; N], StoryError> {
    let told: Option<Vec<usize>> = words.iter().skip(1).map(|word| word.parse().ok()).collect();
    let told = told.and_then(|told| <[usize; N]>::try_from(told).ok());
    told.ok_or_else(|| StoryError::Answer(format!("{words:?}: {N} whole numbers are wanted")))
}

/// Returns the likeliest token of each row.
fn likeliest(cx: &Cx, logits: &Tensor) -> Result<Vec<u32>, StoryError> {
    ops::argmax(cx, logits).map_err(wrong)
}

/// Returns the pages of so many sequences of a length, one sequence after the other, and how many each has.
fn pages_of(sequences: usize, tokens: usize) -> (Vec<u32>, usize) {
    let each = tokens.div_ceil(ops::PAGE_TOKENS);
    ((0..(sequences * each) as u32).collect(), each)
}
