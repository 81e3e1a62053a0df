//! The model hibari: English text to speech, 24 kHz, six million parameters, not autoregressive.
//!
//! So far the text front end: [`text::SentenceCutter`] cuts a stream of text into sentences and
//! [`text::Normaliser`] writes them out as spoken words.
//!
//! The crate does not know who asks, where its nodes run, or how audio leaves the house.
//!
//! ```
//! let spoken = mstar_hibari::text::Normaliser::new().speak("It is 42 km away.");
//! assert_eq!(spoken.text, "It is forty two kilometers away.");
//! ```

pub mod dsp;
pub mod text;
