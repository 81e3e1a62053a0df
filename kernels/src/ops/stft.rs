//! The short-time Fourier transform and its inverse.

use std::f64::consts::TAU;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use crate::error::{below, need};
use crate::pool::Disjoint;
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// What lies beyond the ends of a signal when frames are centred on their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Nothing: the first frame starts at the first sample.
    None,
    /// Half a window of zeros on either side.
    Zero,
    /// Half a window mirrored at the end samples, which are not repeated.
    Reflect,
}

/// The transform for one window and hop. Cheap to clone; make it once.
#[derive(Clone)]
pub struct Stft {
    window: Arc<[f32]>,
    hop: usize,
    edges: Edges,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    fourier: Arc<gpu::ops::Fourier>,
}

/// Returns the periodic Hann window.
pub fn hann(len: usize) -> Vec<f32> {
    (0..len).map(|i| (0.5 - 0.5 * (TAU * i as f64 / len as f64).cos()) as f32).collect()
}

// --- impl Stft ---

impl Stft {
    /// Plans the transform; the window's length is that of the transform.
    pub fn new(window: Vec<f32>, hop: usize, edges: Edges) -> Result<Self, KernelError> {
        let given = [Shape::from([window.len()]), Shape::from([hop])];
        need(!window.is_empty() && hop > 0, "stft", "window and hop are not empty", &given)?;
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(window.len()), planner.plan_fft_inverse(window.len()));
        Ok(Self { window: window.into(), hop, edges, forward, inverse, fourier: Arc::default() })
    }

    /// Returns the number of bins: half the window's length, plus one.
    pub fn bins(&self) -> usize {
        self.window.len() / 2 + 1
    }

    /// Returns the number of frames of a signal.
    pub fn frames(&self, samples: usize) -> usize {
        let padded = samples + 2 * self.side();
        if padded < self.window.len() { 0 } else { (padded - self.window.len()) / self.hop + 1 }
    }

    /// Transforms a signal to `[frames, bins, 2]`: real and imaginary parts.
    pub fn forward(&self, cx: &Cx, signal: &[f32]) -> Result<Tensor, KernelError> {
        let (frames, bins) = (self.frames(signal.len()), self.bins());
        if let Some(gpu) = cx.gpu() {
            return self.on_gpu(gpu, signal)?.reshape([frames, bins, 2]);
        }
        let mut out = Tensor::zeros(crate::DType::F32, [frames, bins, 2])?;
        self.each_frame(cx, signal, out.f32s_mut()?, bins * 2, |spectrum, out| {
            for (out, bin) in out.chunks_exact_mut(2).zip(spectrum) {
                out.copy_from_slice(&[bin.re, bin.im]);
            }
        })?;
        Ok(out)
    }

    /// Transforms `[frames, bins, 2]` back: windowed, overlapped, added, divided by the window's overlapped squares,
    /// without the edges.
    pub fn inverse(&self, cx: &Cx, spectrum: &Tensor) -> Result<Vec<f32>, KernelError> {
        let size = self.window.len();
        let frames = spectrum.dims().first().copied().unwrap_or(0);
        let pieces = self.pieces(cx, spectrum)?;
        if frames == 0 {
            return Ok(Vec::new());
        }
        let mut sum = vec![0.0; (frames - 1) * self.hop + size];
        let mut squares = vec![0.0f32; sum.len()];
        for (frame, piece) in pieces.chunks_exact(size).enumerate() {
            let at = frame * self.hop;
            for ((sum, square), (x, w)) in
                sum[at..].iter_mut().zip(&mut squares[at..]).zip(piece.iter().zip(&*self.window))
            {
                *sum += x;
                *square += w * w;
            }
        }
        let side = self.side();
        let kept = side..sum.len() - side;
        Ok(kept.map(|i| if squares[i] > 1e-11 { sum[i] / squares[i] } else { sum[i] }).collect())
    }

    /// Transforms `[frames, bins, 2]` back to windowed frames, `frames` times the window's length, for an overlap-add
    /// that carries its tail from chunk to chunk.
    pub fn pieces(&self, cx: &Cx, spectrum: &Tensor) -> Result<Vec<f32>, KernelError> {
        let (size, bins) = (self.window.len(), self.bins());
        let fits = spectrum.shape().rank() == 3 && spectrum.dims()[1..] == [bins, 2];
        need(fits, "inverse_stft", "the spectrum is [frames, bins, 2]", &[spectrum.shape(), Shape::from([bins])])?;
        if let Some(gpu) = cx.gpu() {
            let pieces = self.fourier.pieces(gpu, spectrum, &self.window)?;
            return Ok(pieces.to_host()?.f32s()?.to_vec());
        }
        let cpu = cx.cpu_for("inverse_stft")?;
        let items = spectrum.f32s()?;
        let mut pieces = vec![0.0; spectrum.dims()[0] * size];
        cpu.pool.chunks(&mut pieces, GRAIN * size, |chunk, pieces| {
            let (mut bin, mut scratch) = (self.inverse.make_input_vec(), self.inverse.make_scratch_vec());
            for (i, piece) in pieces.chunks_exact_mut(size).enumerate() {
                let from = &items[(chunk * GRAIN + i) * bins * 2..][..bins * 2];
                for (bin, part) in bin.iter_mut().zip(from.chunks_exact(2)) {
                    *bin = Complex::new(part[0], part[1]);
                }
                // A real signal has no imaginary part in its first bin, nor in its last when its length is even.
                bin[0].im = 0.0;
                if size.is_multiple_of(2) {
                    bin[bins - 1].im = 0.0;
                }
                self.inverse
                    .process_with_scratch(&mut bin, piece, &mut scratch)
                    .expect("invariant: the lengths come from the plan");
                for (x, w) in piece.iter_mut().zip(&*self.window) {
                    *x *= w / size as f32;
                }
            }
        });
        Ok(pieces)
    }

    /// Hands each frame's spectrum to `take`, with the frame's `width` elements of `out`.
    pub(super) fn each_frame(
        &self,
        cx: &Cx,
        signal: &[f32],
        out: &mut [f32],
        width: usize,
        take: impl Fn(&[Complex<f32>], &mut [f32]) + Sync,
    ) -> Result<(), KernelError> {
        let cpu = cx.cpu_for("stft")?;
        self.mirrors(signal)?;
        let frames = out.len() / width.max(1);
        let out = Disjoint::new(out);
        cpu.pool.each(frames.div_ceil(GRAIN), |task| {
            let mut frame = self.forward.make_input_vec();
            let (mut bins, mut scratch) = (self.forward.make_output_vec(), self.forward.make_scratch_vec());
            for index in task * GRAIN..frames.min((task + 1) * GRAIN) {
                self.cut(signal, index * self.hop, &mut frame);
                if frame.iter().all(|x| *x == 0.0) {
                    bins.fill(Complex::default());
                } else {
                    let done = self.forward.process_with_scratch(&mut frame, &mut bins, &mut scratch);
                    done.expect("invariant: the lengths come from the plan");
                }
                // SAFETY: a frame belongs to one task.
                take(&bins, unsafe { out.part(index * width, width) });
            }
        });
        Ok(())
    }

    /// The spectrum of a signal on a device, `[frames, bins * 2]`.
    pub(super) fn on_gpu(&self, gpu: &Arc<gpu::Gpu>, signal: &[f32]) -> Result<Tensor, KernelError> {
        self.mirrors(signal)?;
        let edges = match self.edges {
            Edges::None => 0,
            Edges::Zero => 1,
            Edges::Reflect => 2,
        };
        let frames = self.frames(signal.len());
        self.fourier.forward(gpu, signal, &gpu::ops::Frames { window: &self.window, hop: self.hop, edges, frames })
    }

    fn mirrors(&self, signal: &[f32]) -> Result<(), KernelError> {
        match self.edges {
            Edges::Reflect => below("stft", "half a window to mirror", self.side(), signal.len()),
            _ => Ok(()),
        }
    }

    fn side(&self) -> usize {
        if self.edges == Edges::None { 0 } else { self.window.len() / 2 }
    }

    /// Writes the windowed frame that begins at `place` of the signal with its edges.
    fn cut(&self, signal: &[f32], place: usize, frame: &mut [f32]) {
        let inner = place.checked_sub(self.side()).and_then(|start| signal.get(start..start + frame.len()));
        match inner {
            Some(inner) => {
                for ((out, x), w) in frame.iter_mut().zip(inner).zip(&*self.window) {
                    *out = x * w;
                }
            }
            None => {
                for (i, (out, w)) in frame.iter_mut().zip(&*self.window).enumerate() {
                    *out = self.sample(signal, place + i) * w;
                }
            }
        }
    }

    /// The sample at `place` of the signal with its edges.
    fn sample(&self, signal: &[f32], place: usize) -> f32 {
        let (side, len) = (self.side(), signal.len());
        let mirrored = side.abs_diff(place);
        match self.edges {
            Edges::Reflect if mirrored >= len => signal[2 * (len - 1) - mirrored],
            Edges::Zero if place < side || mirrored >= len => 0.0,
            _ => signal[mirrored],
        }
    }
}

/// Frames of one task.
const GRAIN: usize = 8;

impl std::fmt::Debug for Stft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.window.len();
        f.debug_struct("Stft").field("size", &size).field("hop", &self.hop).field("edges", &self.edges).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, noise, random};

    fn cx(threads: usize) -> Cx {
        Cx::with_threads(threads).unwrap()
    }

    /// The definition in f64, over a signal whose edges were laid out before.
    fn reference(padded: &[f32], window: &[f32], hop: usize) -> Vec<f32> {
        let size = window.len();
        let mut out = Vec::new();
        for frame in padded.windows(size).step_by(hop) {
            for bin in 0..=size / 2 {
                let turn = |i: usize| TAU * (bin * i % size) as f64 / size as f64;
                let parts = frame.iter().zip(window).enumerate().map(|(i, (x, w))| (f64::from(x * w), turn(i)));
                let (re, im) = parts.fold((0.0, 0.0), |(re, im), (x, t)| (re + x * t.cos(), im - x * t.sin()));
                out.extend([re as f32, im as f32]);
            }
        }
        out
    }

    #[test]
    fn the_transform_follows_its_definition_at_either_edge() {
        let signal = noise(1, 100);
        let mut mirrored: Vec<f32> = signal[1..=10].iter().rev().copied().collect();
        mirrored.extend(&signal);
        mirrored.extend(signal[89..99].iter().rev());
        let mut zeros = vec![0.0; 10];
        zeros.extend(&signal);
        zeros.extend([0.0; 10]);
        for (edges, padded) in [(Edges::None, &signal), (Edges::Reflect, &mirrored), (Edges::Zero, &zeros)] {
            let stft = Stft::new(hann(20), 7, edges).unwrap();
            let got = stft.forward(&cx(2), &signal).unwrap();
            close(got.f32s().unwrap(), &reference(padded, &hann(20), 7), 1e-5);
        }
    }

    #[test]
    fn the_inverse_undoes_the_transform() {
        let signal = noise(2, 4_800);
        for (size, hop) in [(1_200, 300), (400, 160), (15, 5)] {
            for edges in [Edges::Reflect, Edges::Zero] {
                let stft = Stft::new(hann(size), hop, edges).unwrap();
                let spectrum = stft.forward(&cx(1), &signal).unwrap();
                let back = stft.inverse(&cx(2), &spectrum).unwrap();
                let whole = back.len().min(4_800 - size);
                assert!(whole >= 3_600);
                close(&back[..whole], &signal[..whole], 1e-5);
            }
        }
    }

    #[test]
    fn a_frame_has_the_same_bits_among_any_others() {
        let (stft, spectrum) = (Stft::new(hann(24), 6, Edges::None).unwrap(), random(1, [37, 13, 2]));
        let whole = stft.pieces(&cx(3), &spectrum).unwrap();
        for frame in [0, 7, 8, 36] {
            let alone = stft.pieces(&cx(1), &spectrum.rows(frame..frame + 1).unwrap()).unwrap();
            assert_eq!(alone, whole[frame * 24..][..24]);
        }
    }

    #[test]
    fn short_signals_and_foreign_spectra_are_refused() {
        let stft = Stft::new(hann(20), 5, Edges::Reflect).unwrap();
        assert!(stft.forward(&cx(1), &[0.0; 10]).is_err());
        assert!(stft.inverse(&cx(1), &random(1, [3, 10, 2])).is_err());
        assert!(Stft::new(Vec::new(), 5, Edges::None).is_err());
        assert!(Stft::new(hann(4), 0, Edges::None).is_err());
        assert_eq!(stft.inverse(&cx(1), &random(1, [0, 11, 2])).unwrap(), []);
    }
}
