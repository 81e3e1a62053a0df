//! The mel filters: triangles on Slaney's scale, each of equal area, from 0 to 8000 Hz.
//!
//! Follows `mel_filter_bank` of Hugging Face's `audio_utils.py` with `norm="slaney"` and `mel_scale="slaney"`.

use mstar_kernels::ops::MEL_N_FFT;
use mstar_kernels::{KernelError, Tensor};

const TOP_HZ: f64 = 8_000.0;
/// Below this the scale is linear, above logarithmic.
const BREAK_HZ: f64 = 1_000.0;
const BREAK_MEL: f64 = 15.0;
const HZ_PER_MEL: f64 = 200.0 / 3.0;

/// Returns the filters, `[mels, 201]`.
pub(crate) fn filters(mels: usize) -> Result<Tensor, KernelError> {
    let bins = MEL_N_FFT / 2 + 1;
    let top = hz_to_mel(TOP_HZ);
    let corner = |i: usize| mel_to_hz(top * i as f64 / (mels + 1) as f64);
    let corners: Vec<f64> = (0..mels + 2).map(corner).collect();
    let mut items = Vec::with_capacity(mels * bins);
    for band in corners.windows(3) {
        let (low, centre, high) = (band[0], band[1], band[2]);
        for bin in 0..bins {
            let hz = TOP_HZ * bin as f64 / (bins - 1) as f64;
            let height = ((hz - low) / (centre - low)).min((high - hz) / (high - centre)).max(0.0);
            items.push((height * 2.0 / (high - low)) as f32);
        }
    }
    Tensor::from_f32(items, [mels, bins])
}

fn log_step() -> f64 {
    6.4f64.ln() / 27.0
}

fn hz_to_mel(hz: f64) -> f64 {
    if hz < BREAK_HZ { hz / HZ_PER_MEL } else { BREAK_MEL + (hz / BREAK_HZ).ln() / log_step() }
}

fn mel_to_hz(mel: f64) -> f64 {
    if mel < BREAK_MEL { mel * HZ_PER_MEL } else { BREAK_HZ * ((mel - BREAK_MEL) * log_step()).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_turns_back_and_every_band_has_area() {
        for hz in [0.0, 440.0, 1_000.0, 5_000.0] {
            assert!((mel_to_hz(hz_to_mel(hz)) - hz).abs() < 1e-9);
        }
        let filters = filters(80).unwrap();
        for band in filters.f32s().unwrap().chunks_exact(201) {
            assert!(band.iter().sum::<f32>() > 0.0);
        }
    }
}
