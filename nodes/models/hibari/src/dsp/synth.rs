//! Frames of spectrum to samples, block by block: overlap and source run on in a [`Tail`].

use std::f32::consts::PI;
use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex32;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use super::{BINS, HEAD, HOP, N_FFT, Noise, Pulses};

/// How many hops a transform spans.
const SPAN: usize = N_FFT / HOP;
/// Louder than this the network never means it.
const MAX_LOG_GAIN: f32 = 7.0;

/// The transforms and windows; shared by all requests.
#[derive(Clone)]
pub struct Synth {
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    window: Vec<f32>,
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
    /// The network's output, [`HEAD`] values per frame; its length says how many frames there are.
    pub head: &'a [f32],
    /// The pitch in Hz from frame `f0_start` on, three frames beyond the span or to the sentence's end.
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
    pub fn new() -> Self {
        let mut planner = RealFftPlanner::new();
        let turn = |n: usize| 2.0 * std::f64::consts::PI * n as f64 / N_FFT as f64;
        let window: Vec<f32> = (0..N_FFT).map(|n| (0.5 - 0.5 * turn(n).cos()) as f32).collect();
        let norms = (0..1 << SPAN).map(|present| norm(&window, present)).collect();
        Self { forward: planner.plan_fft_forward(N_FFT), inverse: planner.plan_fft_inverse(N_FFT), window, norms }
    }

    /// Returns the samples that a span completes, all that remain when it ends the sentence. Without noise
    /// the noise branch is silent.
    pub fn render(&self, tail: &mut Tail, span: Span<'_>, noise: Option<Noise>) -> Vec<f32> {
        let count = span.head.len() / HEAD;
        let mut samples = Vec::with_capacity((count + 2) * HOP);
        let mut work = Frame::new(self);
        tail.overlap.resize(N_FFT - HOP, 0.0);
        tail.extend_source((span.start + count + 2).min(span.total), &span);
        for (frame, head) in (span.start..).zip(span.head.chunks_exact(HEAD)) {
            tail.window_source(frame, span.total, &self.window, &mut work.time);
            work.shape(self, head, noise.map(|noise| (noise, frame as u32)));
            tail.overlap.resize(N_FFT, 0.0);
            for ((sum, value), window) in tail.overlap.iter_mut().zip(&work.time).zip(&self.window) {
                *sum += value * window;
            }
            if frame >= 2 {
                self.emit(tail, frame, span.total, &mut samples);
            }
            tail.overlap.drain(..HOP);
        }
        let end = span.start + count;
        tail.forget_source(end);
        if end == span.total {
            for hop in end..end + 2 {
                self.emit(tail, hop, span.total, &mut samples);
                tail.overlap.drain(..HOP);
            }
        }
        samples
    }

    /// Appends the first hop of the overlap, to which the frames `hop - 3 ..= hop` contributed.
    fn emit(&self, tail: &Tail, hop: usize, total: usize, samples: &mut Vec<f32>) {
        let present = (0..SPAN).filter(|back| hop.checked_sub(*back).is_some_and(|frame| frame < total));
        let norm = &self.norms[present.fold(0, |bits, back| bits | 1 << back)];
        samples.extend(tail.overlap.iter().zip(norm).map(|(sum, norm)| sum * norm));
    }
}

impl Default for Synth {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Synth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synth").finish_non_exhaustive()
    }
}

// --- impl Tail ---

impl Tail {
    /// Makes the source up to a frame.
    fn extend_source(&mut self, end: usize, span: &Span<'_>) {
        let pitch = |frame: usize| {
            let at = frame.min(span.total - 1).saturating_sub(span.f0_start);
            span.f0.get(at).copied().unwrap_or_default()
        };
        let made = self.source_start + self.source.len() / HOP;
        for frame in made..end {
            let around = [pitch(frame.saturating_sub(1)), pitch(frame), pitch(frame + 1)];
            self.pulses.frame(around, &mut self.source);
        }
    }

    /// Cuts the source around a frame, windowed; beyond the sentence's ends it is mirrored.
    fn window_source(&self, frame: usize, total: usize, window: &[f32], time: &mut [f32]) {
        let last = (total * HOP) as isize - 1;
        let first = (frame * HOP) as isize - (N_FFT / 2) as isize;
        let origin = (self.source_start * HOP) as isize;
        for ((value, window), at) in time.iter_mut().zip(window).zip(first..) {
            let mirrored = if at > last { 2 * last - at } else { at.abs() };
            let sample = usize::try_from(mirrored - origin).ok().and_then(|at| self.source.get(at));
            *value = sample.map_or(0.0, |sample| sample * (window / (N_FFT / 4) as f32));
        }
    }

    /// Drops the source that no later frame looks back to.
    fn forget_source(&mut self, next: usize) {
        let keep = next.saturating_sub(3).max(self.source_start);
        let drop = ((keep - self.source_start) * HOP).min(self.source.len());
        self.source.drain(..drop);
        self.source_start += drop / HOP;
    }
}

// --- one frame ---

/// The buffers of one frame's transforms.
struct Frame {
    time: Vec<f32>,
    spectrum: Vec<Complex32>,
    noise: Vec<[f32; 2]>,
    scratch: Vec<Complex32>,
}

impl Frame {
    fn new(synth: &Synth) -> Self {
        let scratch = synth.forward.get_scratch_len().max(synth.inverse.get_scratch_len());
        Self {
            time: vec![0.0; N_FFT],
            spectrum: vec![Complex32::default(); BINS],
            noise: vec![[0.0; 2]; BINS],
            scratch: vec![Complex32::default(); scratch],
        }
    }

    /// Turns the windowed source in `time` into the frame's sound there.
    fn shape(&mut self, synth: &Synth, head: &[f32], noise: Option<(Noise, u32)>) {
        let fits = "invariant: the buffers have the lengths the transforms were planned for";
        synth.forward.process_with_scratch(&mut self.time, &mut self.spectrum, &mut self.scratch).expect(fits);
        let part = |k: usize| head[k * BINS..(k + 1) * BINS].iter().copied();
        if let Some((noise, frame)) = noise {
            noise.frame(frame, &mut self.noise);
        }
        let harmonic = part(0).zip(part(1));
        let rest = part(2).zip(part(3).zip(part(4)));
        let places = self.spectrum.iter_mut().zip(&self.noise);
        for ((value, &[re, im]), ((lh, theta), (ln, (lr, phi)))) in places.zip(harmonic.zip(rest)) {
            *value *= Complex32::from_polar(gain(lh), PI * theta.tanh());
            *value += Complex32::new(re, im) * gain(ln);
            *value += Complex32::from_polar(gain(lr), phi);
        }
        // A real sound has none at zero and at half the sample rate; the transform insists.
        self.spectrum[0].im = 0.0;
        self.spectrum[BINS - 1].im = 0.0;
        synth.inverse.process_with_scratch(&mut self.spectrum, &mut self.time, &mut self.scratch).expect(fits);
        self.time.iter_mut().for_each(|value| *value /= N_FFT as f32);
    }
}

fn gain(log: f32) -> f32 {
    log.min(MAX_LOG_GAIN).exp()
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

    fn render(blocks: usize, noise: Option<Noise>) -> Vec<f32> {
        let f0 = golden("s0.f0");
        let total = f0.len();
        let rows = head_rows(&golden("s0.head"), total);
        let (synth, mut tail, mut sound) = (Synth::new(), Tail::default(), Vec::new());
        for start in (0..total).step_by(blocks) {
            let end = (start + blocks).min(total);
            let (f0_start, f0_end) = (start.saturating_sub(1), (end + 3).min(total));
            let head = &rows[start * HEAD..end * HEAD];
            sound.extend(synth.render(
                &mut tail,
                Span { start, total, head, f0: &f0[f0_start..f0_end], f0_start },
                noise,
            ));
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
        let noise = Some(Noise::new(11, 0));
        let whole = render(1000, noise);
        for blocks in [1, 7, 40] {
            assert_eq!(render(blocks, noise), whole, "{blocks}");
        }
        assert_ne!(render(1000, None), whole);
    }
}
