//! From the network's spectrum to sound: a pulse train of the pitch, filtered by the harmonic branch, plus
//! shaped noise, plus a free-phase branch, then one inverse Fourier transform per frame.
//!
//! Follows `hibari/dsp.py` of `hibari-tts` 0.2.1:
//! `S = exp(lh) e^(i pi tanh(theta)) STFT(pulses) + exp(ln) Z + exp(lr) e^(i phi)`.

mod pulses;
mod synth;

pub use pulses::Pulses;
pub use synth::{Span, Synth, Tail};

/// Samples per second of the sound.
pub const SAMPLE_RATE: u32 = 24_000;
/// Samples per frame.
pub const HOP: usize = 300;
/// Samples of one transform.
pub const N_FFT: usize = 1200;
/// Frequency bins of one transform.
pub const BINS: usize = N_FFT / 2 + 1;
/// What the network gives per frame: five parts of [`BINS`].
pub const HEAD: usize = 5 * BINS;
