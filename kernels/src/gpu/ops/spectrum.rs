//! The Fourier transform as a linear layer: the device multiplies frames with cosines and sines.

use std::f64::consts::TAU;
use std::sync::{Arc, OnceLock};

use super::linear::{Behind, Weights, linear};
use super::{THREADS, count, items, narrow, result};
use crate::gpu::{Arg, Gpu};
use crate::{DType, KernelError, Tensor};

/// What a transform needs, in host memory.
pub(crate) struct Frames<'a> {
    pub(crate) window: &'a [f32],
    pub(crate) hop: usize,
    /// 0 none, 1 zeros, 2 mirrored.
    pub(crate) edges: u32,
    pub(crate) frames: usize,
}

/// Threads of the blocks that look for a maximum.
const MAXIMUM: u32 = 1_024;

/// The cosines and sines of one transform, on the device that asked for them first.
#[derive(Debug, Default)]
pub(crate) struct Fourier {
    forward: OnceLock<Tensor>,
    inverse: OnceLock<Tensor>,
}

impl Fourier {
    /// `[frames, bins * 2]`: real and imaginary parts.
    pub(crate) fn forward(&self, gpu: &Arc<Gpu>, signal: &[f32], frames: &Frames<'_>) -> Result<Tensor, KernelError> {
        let (op, size) = ("stft", frames.window.len());
        let (cut, at) = result(gpu, op, DType::F32, [frames.frames, size])?;
        let signal_there = Tensor::from_slice(signal, [signal.len()])?.moved(gpu)?;
        let args = [
            signal_there.at(gpu, op, DType::F32)?,
            Arg::Pointer(gpu.staged("window", bytemuck::cast_slice(frames.window))?),
            at,
            count(cut.len()),
            count(signal.len()),
            narrow(op, "window", size)?.into(),
            narrow(op, "hop", frames.hop)?.into(),
            frames.edges.into(),
        ];
        gpu.launch("stft_frames", items(op, cut.len())?, THREADS, &args)?;
        multiply(gpu, &cut, &placed(gpu, &self.forward, || forward_table(size))?)
    }

    /// Windowed frames of `[frames, bins, 2]`, `frames` times the window's length.
    pub(crate) fn pieces(&self, gpu: &Arc<Gpu>, spectrum: &Tensor, window: &[f32]) -> Result<Tensor, KernelError> {
        let flat = spectrum.reshape([spectrum.dims()[0], spectrum.dims()[1] * 2])?;
        multiply(gpu, &flat, &placed(gpu, &self.inverse, || inverse_table(window))?)
    }
}

/// Returns a table that was made before, if it lies on this device.
fn placed(
    gpu: &Arc<Gpu>,
    known: &OnceLock<Tensor>,
    table: impl FnOnce() -> Result<Tensor, KernelError>,
) -> Result<Tensor, KernelError> {
    if let Some(known) = known.get().filter(|known| known.gpu().is_some_and(|own| Arc::ptr_eq(own, gpu))) {
        return Ok(known.clone());
    }
    let made = table()?.moved(gpu)?;
    // Another device may hold the place: then this one makes it each time.
    let _ = known.set(made.clone());
    Ok(made)
}

/// The turn of sample `i` in bin `bin`, in radians.
fn turn(bin: usize, i: usize, size: usize) -> f64 {
    TAU * (bin * i % size) as f64 / size as f64
}

/// `[bins * 2][size]`: cosines, and sines taken away.
fn forward_table(size: usize) -> Result<Tensor, KernelError> {
    let outputs = (size / 2 + 1) * 2;
    let value = |place: usize| {
        let (output, i) = (place / size, place % size);
        let turn = turn(output / 2, i, size);
        if output % 2 == 0 { turn.cos() as f32 } else { -turn.sin() as f32 }
    };
    Tensor::from_f32((0..outputs * size).map(value).collect(), [outputs, size])
}

/// `[size][bins * 2]`, with the window. Bins between the first and the last stand for two; imaginary parts of those ends
/// count nothing.
fn inverse_table(window: &[f32]) -> Result<Tensor, KernelError> {
    let size = window.len();
    let inputs = (size / 2 + 1) * 2;
    let value = |place: usize| {
        let (i, bin, imaginary) = (place / inputs, place % inputs / 2, place % 2 == 1);
        let (turn, end) = (turn(bin, i, size), bin == 0 || 2 * bin == size);
        let scale = f64::from(window[i]) / size as f64;
        (match (imaginary, end) {
            (true, true) => 0.0,
            (true, false) => -2.0 * turn.sin() * scale,
            (false, true) => turn.cos() * scale,
            (false, false) => 2.0 * turn.cos() * scale,
        }) as f32
    };
    Tensor::from_f32((0..size * inputs).map(value).collect(), [size, inputs])
}

/// log10 of the filtered power, `[frames, mels]`, not below the greatest minus 8, plus 4, divided by 4. `filters` is
/// `[mels][bins]`; frames of the spectrum beyond `frames` are left out.
pub(crate) fn log_mel(
    gpu: &Arc<Gpu>,
    spectrum: &Tensor,
    filters: &[f32],
    (frames, bins, mels): (usize, usize, usize),
) -> Result<Tensor, KernelError> {
    let op = "log_mel";
    let (out, at) = result(gpu, op, DType::F32, [frames, mels])?;
    let args = [
        spectrum.at(gpu, op, DType::F32)?,
        Arg::Pointer(gpu.staged("filters", bytemuck::cast_slice(filters))?),
        at,
        count(out.len()),
        narrow(op, "bins", bins)?.into(),
        narrow(op, "mels", mels)?.into(),
    ];
    gpu.launch("mel_logs", items(op, out.len())?, THREADS, &args)?;
    let blocks = out.len().div_ceil(MAXIMUM as usize).clamp(1, 256) as u32;
    let (some, to_some) = result(gpu, op, DType::F32, [blocks as usize])?;
    let (most, to_most) = result(gpu, op, DType::F32, [1])?;
    gpu.launch("greatest", [blocks, 1, 1], MAXIMUM, &[at, to_some, count(out.len())])?;
    gpu.launch("greatest", [1, 1, 1], MAXIMUM, &[to_some, to_most, count(some.len())])?;
    let args = [at, most.at(gpu, op, DType::F32)?, count(out.len())];
    gpu.launch("mel_floor", items(op, out.len())?, THREADS, &args)?;
    Ok(out)
}

fn multiply(gpu: &Arc<Gpu>, x: &Tensor, weight: &Tensor) -> Result<Tensor, KernelError> {
    let (outputs, inputs) = (weight.dims()[0], weight.dims()[1]);
    linear(gpu, x, Weights { weight, steps: None, bias: None, inputs, outputs }, Behind { function: 0, residual: None })
}
