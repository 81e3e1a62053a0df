//! Audio in and out: recognising, decoding, resampling, encoding.
//!
//! [`decode_audio`] turns an uploaded WAV, FLAC, MP3 or Ogg Vorbis file into mono samples within
//! [`Limits`]; [`resample`] brings them to a model's rate; [`encode`](encode()) turns a model's samples
//! into WAV, raw PCM or FLAC; [`sniff`] says what a file is. Every input is taken as hostile: a broken
//! or lying file is a typed error, and memory is bounded by the limits, not by what a header announces.
//!
//! The crate knows samples and containers. It refuses to know models, requests and files on disk.
//!
//! ```
//! use mstar_media::{AudioFormat, Limits, decode_audio, encode, resample};
//!
//! let tone: Vec<f32> = (0..24_000).map(|i| (i as f32 * 0.1).sin() * 0.5).collect();
//! let wav = encode(AudioFormat::Wav, &tone, 24_000)?;
//! let heard = resample(&decode_audio(&wav, &Limits::default())?, 16_000)?;
//! assert_eq!((heard.samples.len(), heard.sample_rate), (16_000, 16_000));
//! # Ok::<(), mstar_media::MediaError>(())
//! ```

mod decode;
mod encode;
mod error;
mod resample;
mod sniff;

pub use decode::{Audio, Limits, decode_audio};
pub use encode::{AudioFormat, encode, pcm16, pcm16_bytes, wav_header};
pub use error::MediaError;
pub use resample::resample;
pub use sniff::{AudioKind, MediaKind, sniff};
