//! Whisper's log-mel spectrogram.

use crate::error::need;
use crate::ops::stft::{Edges, Stft, hann};
use crate::{Cx, KernelError, Tensor, gpu};

/// Samples of Whisper's analysis window.
pub const MEL_N_FFT: usize = 400;
/// Samples from one of Whisper's frames to the next.
pub const MEL_HOP: usize = 160;

/// What is less is counted as this, of power.
const LEAST: f32 = 1e-10;

/// The log-mel spectrogram for one set of filters. Make it once.
#[derive(Clone, Debug)]
pub struct LogMel {
    stft: Stft,
    filters: Vec<Band>,
}

/// A mel band: its weights from the first to the last bin that counts.
#[derive(Clone, Debug)]
struct Band {
    first: usize,
    weights: Vec<f32>,
}

// --- impl LogMel ---

impl LogMel {
    /// Takes mel filters of shape `[mels, 201]` or `[201, mels]`.
    pub fn new(filters: &Tensor) -> Result<Self, KernelError> {
        let stft = Stft::new(hann(MEL_N_FFT), MEL_HOP, Edges::Reflect)?;
        let (items, bins) = (filters.f32s()?, stft.bins());
        let (mels, by_mel) = match *filters.dims() {
            [mels, width] if width == bins => (mels, true),
            [height, mels] if height == bins => (mels, false),
            _ => (0, false),
        };
        need(mels > 0, "log_mel", "the filters are [mels, 201] or [201, mels]", &[filters.shape()])?;
        let place = |i: usize| if by_mel { i } else { (i % bins) * mels + i / bins };
        let whole = |mel: usize| (0..bins).map(|bin| items[place(mel * bins + bin)]).collect();
        Ok(Self { stft, filters: (0..mels).map(whole).map(Band::new).collect() })
    }

    /// Returns the number of mel bands.
    pub fn mels(&self) -> usize {
        self.filters.len()
    }

    /// Computes `[frames, mels]` of 16 kHz samples, already padded to their window (30 s for Whisper): log10 of the
    /// filtered power, not below the greatest minus 8, plus 4, divided by 4. One frame per hop; the last is dropped.
    pub fn run(&self, cx: &Cx, samples: &[f32]) -> Result<Tensor, KernelError> {
        let frames = self.stft.frames(samples.len()).saturating_sub(1);
        if let Some(gpu) = cx.gpu() {
            let (bins, spectrum) = (self.stft.bins(), self.stft.on_gpu(gpu, samples)?);
            let filters: Vec<f32> = self.filters.iter().flat_map(|band| band.whole(bins)).collect();
            return gpu::ops::log_mel(gpu, &spectrum, &filters, (frames, bins, self.mels()));
        }
        let mut out = Tensor::zeros(crate::DType::F32, [frames, self.mels()])?;
        self.stft.each_frame(cx, samples, out.f32s_mut()?, self.mels(), |spectrum, out| {
            let mut power = [0.0f32; MEL_N_FFT / 2 + 1];
            for (power, bin) in power.iter_mut().zip(spectrum) {
                *power = bin.norm_sqr();
            }
            if power.iter().all(|power| *power == 0.0) {
                return out.fill(LEAST.log10());
            }
            for (out, band) in out.iter_mut().zip(&self.filters) {
                *out = sum_of_products(&band.weights, &power[band.first..]).max(LEAST).log10();
            }
        })?;
        let items = out.f32s_mut()?;
        let floor = greatest(items) - 8.0;
        for item in items {
            *item = (item.max(floor) + 4.0) / 4.0;
        }
        Ok(out)
    }
}

// --- impl Band ---

impl Band {
    fn new(weights: Vec<f32>) -> Self {
        let counts = |w: &f32| *w != 0.0;
        let first = weights.iter().position(counts).unwrap_or(0);
        let end = weights.iter().rposition(counts).map_or(first, |last| last + 1);
        Self { first, weights: weights[first..end].to_vec() }
    }

    /// The weights of all bins.
    fn whole(&self, bins: usize) -> Vec<f32> {
        let mut whole = vec![0.0; bins];
        whole[self.first..][..self.weights.len()].copy_from_slice(&self.weights);
        whole
    }
}

/// Sixteen running maxima, which the compiler makes vectors.
fn greatest(items: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; 16];
    for items in items.chunks(16) {
        for (most, &x) in most.iter_mut().zip(items) {
            *most = most.max(x);
        }
    }
    most.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Eight running sums: the order is fixed, and the compiler can use vectors.
fn sum_of_products(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use crate::check::{close, noise};

    /// Triangles over 201 bins, as a stand-in for the model's filters.
    fn triangles(mels: usize) -> Vec<f32> {
        let width = 201.0 / (mels as f32 + 1.0);
        let centre = |mel: usize| (mel as f32 + 1.0) * width;
        let value = |mel: usize, bin: usize| (1.0 - (bin as f32 - centre(mel)).abs() / width).max(0.0);
        (0..mels * 201).map(|i| value(i / 201, i % 201)).collect()
    }

    /// Everything in f64, from the definition.
    fn reference(samples: &[f32], filters: &[f32], mels: usize) -> Vec<f32> {
        let at = |i: isize| {
            let (last, i) = (samples.len() as isize - 1, i.abs());
            f64::from(samples[if i > last { 2 * last - i } else { i } as usize])
        };
        let mut logs = Vec::new();
        for frame in 0..samples.len() / MEL_HOP {
            let first = (frame * MEL_HOP) as isize - 200;
            let power: Vec<f64> = (0..=200usize)
                .map(|bin| {
                    let (mut re, mut im) = (0.0, 0.0);
                    for i in 0..MEL_N_FFT {
                        let turn = TAU * (bin * i % MEL_N_FFT) as f64 / MEL_N_FFT as f64;
                        let window = 0.5 - 0.5 * (TAU * i as f64 / MEL_N_FFT as f64).cos();
                        let x = at(first + i as isize) * window;
                        (re, im) = (re + x * turn.cos(), im - x * turn.sin());
                    }
                    re * re + im * im
                })
                .collect();
            for mel in 0..mels {
                let filter = &filters[mel * 201..][..201];
                let sum: f64 = filter.iter().zip(&power).map(|(f, p)| f64::from(*f) * p).sum();
                logs.push(sum.max(1e-10).log10());
            }
        }
        let floor = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max) - 8.0;
        logs.iter().map(|log| ((log.max(floor) + 4.0) / 4.0) as f32).collect()
    }

    #[test]
    fn the_spectrogram_follows_its_definition_through_tone_noise_and_silence() {
        let tone = (0..2_400).map(|i| (TAU * 440.0 * f64::from(i) / 16_000.0).sin() as f32);
        let quiet = noise(1, 1_600).into_iter().map(|x| x * 1e-3);
        let samples: Vec<f32> = tone.chain(quiet).chain(std::iter::repeat_n(0.0, 1_600)).collect();
        let filters = triangles(20);
        let want = reference(&samples, &filters, 20);
        let by_mel = Tensor::from_f32(filters, [20, 201]).unwrap();
        for threads in [1, 2] {
            let cx = Cx::with_threads(threads).unwrap();
            let by_bin = crate::ops::transpose(&cx, &by_mel).unwrap();
            for filters in [&by_mel, &by_bin] {
                let got = LogMel::new(filters).unwrap().run(&cx, &samples).unwrap();
                assert_eq!(got.dims(), [35, 20]);
                close(got.f32s().unwrap(), &want, 1e-4);
            }
        }
    }

    #[test]
    fn filters_of_another_window_and_tiny_inputs_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        assert!(LogMel::new(&Tensor::from_f32(vec![0.0; 600], [3, 200]).unwrap()).is_err());
        let mel = LogMel::new(&Tensor::from_f32(triangles(3), [3, 201]).unwrap()).unwrap();
        assert_eq!(mel.mels(), 3);
        assert!(mel.run(&cx, &[0.0; 100]).is_err());
    }
}
