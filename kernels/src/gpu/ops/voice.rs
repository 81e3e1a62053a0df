//! Noise by its place, and the spectrum of a voice.

use std::sync::Arc;

use super::{THREADS, count, flags, items, optional, result};
use crate::gpu::Gpu;
use crate::ops::NoiseKey;
use crate::{DType, KernelError, Shape, Tensor};

/// Normal numbers of the rows from `first_row` on, `[rows, width]`; four are made by one thread.
pub(crate) fn normal(gpu: &Arc<Gpu>, key: NoiseKey, first_row: u32, shape: Shape) -> Result<Tensor, KernelError> {
    let (op, (rows, width)) = ("normal", (shape.height(), shape.width()));
    let (out, at) = result(gpu, op, DType::F32, shape)?;
    if out.is_empty() {
        return Ok(out);
    }
    let fours = width.div_ceil(4);
    let (low, high) = (key.seed as u32, (key.seed >> 32) as u32);
    let args = [
        at,
        count(rows * fours),
        count(width),
        count(fours),
        first_row.into(),
        key.stream.into(),
        low.into(),
        high.into(),
    ];
    gpu.launch(op, items(op, rows * fours)?, THREADS, &args)?;
    Ok(out)
}

/// The spectrum `[frames, bins, 2]` of a voice.
pub(crate) fn voice_spectrum(
    gpu: &Arc<Gpu>,
    head: &Tensor,
    source: &Tensor,
    noise: Option<&Tensor>,
    most: f32,
) -> Result<Tensor, KernelError> {
    let op = "voice_spectrum";
    let (out, at) = result(gpu, op, DType::F32, source.shape())?;
    let bins = out.len() / 2;
    let args = [
        head.at(gpu, op, DType::F32)?,
        source.at(gpu, op, DType::F32)?,
        optional(gpu, op, noise)?,
        at,
        count(bins),
        count(source.dims()[1]),
        most.into(),
        flags(noise.is_some(), false),
    ];
    gpu.launch(op, items(op, bins)?, THREADS, &args)?;
    Ok(out)
}
