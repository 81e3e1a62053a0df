//! Frames of spectrum to samples, block by block: overlap and source run on in a [`Tail`].

use std::ops::Range;

use mstar_kernels::ops::{self, Edges, Stft};
use mstar_kernels::{Cx, KernelError, NoiseKey, Tensor};

use super::{BINS, HOP, N_FFT, Pulses};

/// How many hops a transform spans.
const SPAN: usize = N_FFT / HOP;
/// Louder than this the network never means it.
const MAX_LOG_GAIN: f32 = 7.0;

/// The transforms and windows; shared by all requests.
#[derive(Debug, Clone)]
pub struct Synth {
    transform: Stft,
    /// One over the summed squared windows of a hop, by which of its four frames exist (a bit each).
    norms: Vec<[f32; HOP]>,
}

/// Consecutive frames of one sentence.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The first frame of the span.
    pub start: usize,
    /// All frames of the sentence.
    pub total: usize,
    /// The network's output, `[frames, 5 * BINS]`.
    pub head: &'a Tensor,
    /// The pitch in Hz from frame `f0_start` on, from the frame before the span to three frames beyond it, as far as
    /// the sentence reaches.
    pub f0: &'a [f32],
    /// The frame of the first pitch value.
    pub f0_start: usize,
}

/// What a sentence's next block needs of those before it.
#[derive(Debug, Clone, Default)]
pub struct Tail {
    pulses: Pulses,
    /// Samples of the source, from frame `source_start` on.
    source: Vec<f32>,
    source_start: usize,
    /// The overlapping sums of the last three frames.
    overlap: Vec<f32>,
}

// --- impl Synth ---

impl Synth {
    /// Plans the transforms.
    pub fn new() -> Result<Self, KernelError> {
        let window = ops::hann(N_FFT);
        let norms = (0..1 << SPAN).map(|present| norm(&window, present)).collect();
        Ok(Self { transform: Stft::new(window, HOP, Edges::None)?, norms })
    }

    /// Returns the samples that a span completes, all that remain when it ends the sentence. Without noise
    /// the noise branch is silent.
    pub fn render(
        &self,
        cx: &Cx,
        tail: &mut Tail,
        span: Span<'_>,
        noise: Option<NoiseKey>,
    ) -> Result<Vec<f32>, KernelError> {
        let count = span.head.dims()[0];
        let end = span.start + count;
        tail.extend_source(cx, (end + 2).min(span.total), &span)?;
        let source = self.transform.forward(cx, &tail.around(span.start..end, span.total))?;
        let noise = noise.map(|key| ops::normal(cx, key, span.start as u32, [count, 2 * BINS])).transpose()?;
        let noise = noise.map(|noise| noise.reshape([count, BINS, 2])).transpose()?;
        let spectrum = ops::voice_spectrum(cx, span.head, &source, noise.as_ref(), MAX_LOG_GAIN)?;
        let pieces = self.transform.pieces(cx, &spectrum)?;
        let mut samples = Vec::with_capacity((count + 2) * HOP);
        tail.overlap.resize(N_FFT - HOP, 0.0);
        for (frame, piece) in (span.start..).zip(pieces.chunks_exact(N_FFT)) {
            tail.overlap.resize(N_FFT, 0.0);
            tail.overlap.iter_mut().zip(piece).for_each(|(sum, value)| *sum += value);
            if frame >= 2 {
                self.emit(tail, frame, span.total, &mut samples);
            }
            tail.overlap.drain(..HOP);
        }
        tail.forget_source(end);
        if end == span.total {
            for hop in end..end + 2 {
                self.emit(tail, hop, span.total, &mut samples);
                tail.overlap.drain(..HOP);
            }
        }
        Ok(samples)
    }

    /// Appends the first hop of the overlap, to which the frames `hop - 3 ..= hop` contributed.
    fn emit(&self, tail: &Tail, hop: usize, total: usize, samples: &mut Vec<f32>) {
        let present = (0..SPAN).filter(|back| hop.checked_sub(*back).is_some_and(|frame| frame < total));
        let norm = &self.norms[present.fold(0, |bits, back| bits | 1 << back)];
        samples.extend(tail.overlap.iter().zip(norm).map(|(sum, norm)| sum * norm));
    }
}

// --- impl Tail ---

impl Tail {
    /// Makes the source up to a frame.
    fn extend_source(&mut self, cx: &Cx, end: usize, span: &Span<'_>) -> Result<(), KernelError> {
        let pitch = |frame: usize| {
            let at = frame.min(span.total - 1).saturating_sub(span.f0_start);
            span.f0.get(at).copied().unwrap_or_default()
        };
        let made = self.source_start + self.source.len() / HOP;
        let around = |frame: usize| [pitch(frame.saturating_sub(1)), pitch(frame), pitch(frame + 1)];
        let pitches: Vec<[f32; 3]> = (made..end).map(around).collect();
        self.source.extend(self.pulses.frames(cx, &pitches)?);
        Ok(())
    }

    /// Returns the source that some frames look at, scaled for the transform; beyond the sentence's ends it is mirrored.
    fn around(&self, frames: Range<usize>, total: usize) -> Vec<f32> {
        let signed = |samples: usize| samples as isize;
        let (last, side) = (signed(total * HOP) - 1, signed(N_FFT / 2));
        let places = signed(frames.start * HOP) - side..signed(frames.end * HOP) - signed(HOP) + side;
        let origin = signed(self.source_start * HOP);
        let sample = |at: isize| {
            let mirrored = if at > last { 2 * last - at } else { at.abs() };
            usize::try_from(mirrored - origin).ok().and_then(|at| self.source.get(at)).copied().unwrap_or_default()
        };
        places.map(|at| sample(at) / (N_FFT / 4) as f32).collect()
    }

    /// Drops the source that no later frame looks back to.
    fn forget_source(&mut self, next: usize) {
        let keep = next.saturating_sub(3).max(self.source_start);
        let drop = ((keep - self.source_start) * HOP).min(self.source.len());
        self.source.drain(..drop);
        self.source_start += drop / HOP;
    }
}

/// Returns the norm of a hop of which the frames with a bit in `present` exist, bit 0 the latest.
fn norm(window: &[f32], present: usize) -> [f32; HOP] {
    std::array::from_fn(|j| {
        let squares = (0..SPAN).filter(|back| present >> back & 1 == 1).map(|back| window[back * HOP + j].powi(2));
        1.0 / squares.sum::<f32>().max(1e-11)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsp::HEAD;

    fn golden(name: &str) -> Vec<f32> {
        let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/hibari.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = file.tensor(name).unwrap().data();
        data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    /// The reference's head as rows of frames. The file declares [5, 601, F], its bytes lie as [5, F, 601].
    fn head_rows(head: &[f32], total: usize) -> Vec<f32> {
        let places = (0..total).flat_map(|frame| (0..HEAD).map(move |k| (k / BINS * total + frame) * BINS + k % BINS));
        places.map(|at| head[at]).collect()
    }

    fn render(blocks: usize, noise: Option<NoiseKey>) -> Vec<f32> {
        let cx = Cx::with_threads(2).unwrap();
        let f0 = golden("s0.f0");
        let total = f0.len();
        let rows = head_rows(&golden("s0.head"), total);
        let (synth, mut tail, mut sound) = (Synth::new().unwrap(), Tail::default(), Vec::new());
        for start in (0..total).step_by(blocks) {
            let end = (start + blocks).min(total);
            let (f0_start, f0_end) = (start.saturating_sub(1), (end + 3).min(total));
            let head = Tensor::from_slice(&rows[start * HEAD..end * HEAD], [end - start, HEAD]).unwrap();
            let span = Span { start, total, head: &head, f0: &f0[f0_start..f0_end], f0_start };
            sound.extend(synth.render(&cx, &mut tail, span, noise).unwrap());
        }
        sound
    }

    #[test]
    fn the_sound_of_the_reference_spectrum_is_the_reference_sound() {
        let (sound, wanted) = (render(1000, None), golden("s0.wav_nonoise"));
        assert_eq!(sound.len(), wanted.len());
        let worst = sound.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
    }

    #[test]
    fn blocks_join_bit_for_bit() {
        let noise = Some(NoiseKey { seed: 11, stream: 0 });
        let whole = render(1000, noise);
        for blocks in [1, 7, 40] {
            assert_eq!(render(blocks, noise), whole, "{blocks}");
        }
        assert_ne!(render(1000, None), whole);
    }
}
