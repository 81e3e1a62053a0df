//! Rotary position embedding.

use std::sync::Arc;

use super::{THREADS, count, items, narrow, result};
use crate::gpu::{Arg, Gpu};
use crate::{DType, KernelError, Tensor};

/// Cosines and sines, `[rows][pairs]`, and which elements make a pair.
pub(crate) struct Turns<'a> {
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
    pub(crate) pairs: usize,
    pub(crate) adjacent: bool,
}

/// Turns `x` of shape `[rows, heads, width]`.
pub(crate) fn rope(gpu: &Arc<Gpu>, x: &Tensor, turns: &Turns<'_>) -> Result<Tensor, KernelError> {
    let op = "rope";
    let (heads, width) = (x.dims()[1], x.dims()[2]);
    let threads = x.dims()[0] * heads * (width - turns.pairs);
    let (out, at) = result(gpu, op, DType::F32, x.shape())?;
    let args = [
        x.at(gpu, op, DType::F32)?,
        Arg::Pointer(gpu.staged("cosines", bytemuck::cast_slice(turns.cos))?),
        Arg::Pointer(gpu.staged("sines", bytemuck::cast_slice(turns.sin))?),
        at,
        count(threads),
        narrow(op, "heads", heads)?.into(),
        narrow(op, "width", width)?.into(),
        narrow(op, "pairs", turns.pairs)?.into(),
        u32::from(turns.adjacent).into(),
    ];
    gpu.launch(op, items(op, threads)?, THREADS, &args)?;
    Ok(out)
}
