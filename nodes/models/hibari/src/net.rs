//! The network in `f32`: text encoders, prosody, decoder, and the small one that spells unknown words.
//!
//! Follows the graph of `hibari.onnx` and `oov.onnx` in `hibari-tts` 0.2.1. Rows are time, columns channels.

mod acoustic;
mod decoder;
mod layers;
mod speller;

pub use acoustic::{Acoustic, Speech};
pub use decoder::{Decoder, Held, LOOK_AHEAD};
pub use speller::Speller;

/// Columns of the decoder's input: the text's encoding, the pitch and the energy.
pub const DECODER_IN: usize = 130;
