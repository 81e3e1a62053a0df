//! The model hibari: English text to speech, 24 kHz, six million parameters, not autoregressive.
//!
//! Three components, joined by streams: `hibari.cutter` cuts text into sentences, `hibari.acoustic` reads a sentence
//! into symbols and gives blocks of frames (text, pitch, energy), `hibari.vocoder` turns blocks into sound that joins
//! without a seam. Composites include the walks through [`read_stream_fragment`], [`speech_fragment`] and
//! [`sound_fragment`]. The network follows the graphs of `hibari-tts` 0.2.1, the synthesis its `dsp.py`.
//!
//! The crate does not know who asks, where its nodes run, or how audio leaves the house.
//!
//! ```
//! use mstar_contract::Model;
//! let model = mstar_hibari::Hibari::new();
//! assert_eq!(model.card().voices, ["heart"]);
//! let spoken = mstar_hibari::text::Normaliser::new().speak("It is 42 km away.");
//! assert_eq!(spoken.text, "It is forty two kilometers away.");
//! ```

mod block;
pub mod dsp;
mod error;
mod model;
pub mod net;
mod nodes;
mod plan;
pub mod text;
pub mod verify;
mod vocoder;

pub use block::{BLOCK_COLUMNS, BLOCK_FRAMES, Block, FIRST_FRAMES, blocks};
pub use error::HibariError;
pub use model::{
    BLOCKS, Hibari, READ, SENTENCES, SOUND, SPEECH, components, read_fragment, read_stream_fragment, sound_fragment,
    speech_fragment,
};
pub use nodes::{AcousticNode, CutterNode, VocoderNode};
pub use plan::{OPTIONS, SpeechOptions, VOICE};
pub use vocoder::{Sound, Vocoder};
