//! Whisper: writes down what is said, in audio of any length, with times.
//!
//! Five components and one walk over them, `transcribe`: the file is decoded; window by window of 30 s, its
//! spectrogram is encoded and its words are decoded until the window's end token; timestamps say where the next window
//! begins. Composites include the walk through [`transcribe_fragment`].
//!
//! This crate refuses to know pages, sampling, batching and HTTP.
//!
//! ```
//! use mstar_contract::Model;
//! let model = mstar_whisper::Whisper::new();
//! assert_eq!(model.id(), "whisper");
//! assert!(model.graph().find_walk("transcribe").is_some());
//! ```

mod config;
mod mel;
mod model;
mod network;
mod nodes;
mod options;
mod plan;
mod rules;
pub mod verify;
mod windows;

pub use config::{Config, Specials};
pub use model::{Whisper, components, transcribe_fragment};
pub use network::{DecoderNetwork, EncoderNetwork, Tap};
pub use nodes::{Decode, Encode, Features, MediaIn, Segments};
pub use options::OPTIONS;
pub use rules::RuleOptions;
