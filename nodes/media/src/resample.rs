//! Changing the sample rate.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler, WindowFunction};

use crate::decode::Audio;
use crate::error::MediaError;

/// The least samples per FFT block: long blocks make a steep filter.
const BLOCK: usize = 4096;

const WINDOW: WindowFunction = WindowFunction::BlackmanHarris2;

/// Brings audio to another sample rate.
///
/// The result has exactly `samples * to / from` samples, rounded to the nearest, without delay: what
/// sounds at a time sounds there afterwards. Equal input gives equal output.
pub fn resample(audio: &Audio, sample_rate: u32) -> Result<Audio, MediaError> {
    if sample_rate == audio.sample_rate {
        return Ok(audio.clone());
    }
    let unsupported = |reason: String| {
        MediaError::Unsupported(format!("resampling from {} to {sample_rate} Hz: {reason}", audio.sample_rate))
    };
    if sample_rate == 0 || audio.sample_rate == 0 {
        return Err(unsupported("there is no such rate".into()));
    }
    let (from, to) = (audio.sample_rate as usize, sample_rate as usize);
    let count = audio.samples.len();
    let wanted = ((count as u128 * to as u128 + from as u128 / 2) / from as u128) as usize;
    let mut samples = Vec::new();
    if count > 0 {
        let mut resampler = Fft::<f32>::new_custom(from, to, block(from, to), 1, 1, WINDOW, FixedSync::Input)
            .map_err(|error| unsupported(error.to_string()))?;
        let input = InterleavedSlice::new(&audio.samples, 1, count).map_err(|error| unsupported(error.to_string()))?;
        let output = resampler.process_all(&input, count, None).map_err(|error| unsupported(error.to_string()))?;
        samples = output.take_data();
    }
    samples.resize(wanted, 0.0);
    Ok(Audio { samples, sample_rate, channels_in: audio.channels_in })
}

/// The samples per block: an even number of the shortest exact blocks. The filter delays by half a
/// block, and half of an odd one would leave the result half a sample late.
fn block(from: usize, to: usize) -> usize {
    let (mut a, mut b) = (from, to);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let shortest = from / a;
    BLOCK.div_ceil(shortest).next_multiple_of(2) * shortest
}
