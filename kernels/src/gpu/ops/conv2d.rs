//! Convolution over height and width.

use std::sync::Arc;

use super::linear::{Behind, Weights, tiles};
use super::{THREADS, count, flags, narrow, optional, result};
use crate::gpu::Gpu;
use crate::ops::Grid;
use crate::{DType, KernelError, Tensor};

/// Convolves an image `[height, width, channels]`; the weights' inputs are `[tap down][tap across][channel]`.
pub(crate) fn conv2d(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weights: Weights<'_>,
    (grid, kernel): (Grid, (usize, usize)),
    behind: Behind<'_>,
) -> Result<Tensor, KernelError> {
    let (op, channels) = ("conv2d", x.dims()[2]);
    let (height, width) = grid.outputs((x.dims()[0], x.dims()[1]), kernel);
    let (y, at) = result(gpu, op, DType::F32, [height, width, weights.outputs])?;
    let (name, [weight, steps, bias]) = weights.args(gpu, op, ["conv2d_f32", "conv2d_bf16", "conv2d_blocks"])?;
    let pixels = height * width;
    let args = [
        x.at(gpu, op, DType::F32)?,
        weight,
        steps,
        bias,
        optional(gpu, op, behind.residual)?,
        at,
        count(pixels),
        narrow(op, "height", x.dims()[0])?.into(),
        narrow(op, "width", x.dims()[1])?.into(),
        narrow(op, "channels", channels)?.into(),
        narrow(op, "taps", kernel.1)?.into(),
        narrow(op, "stride", grid.stride.0)?.into(),
        narrow(op, "stride", grid.stride.1)?.into(),
        narrow(op, "padding", grid.rows_around.0)?.into(),
        narrow(op, "padding", grid.columns_around.0)?.into(),
        narrow(op, "repetition", grid.repeat)?.into(),
        narrow(op, "width", width)?.into(),
        narrow(op, "inputs", weights.inputs)?.into(),
        narrow(op, "outputs", weights.outputs)?.into(),
        behind.function.into(),
        flags(weights.bias.is_some(), behind.residual.is_some()),
    ];
    gpu.launch(name, tiles(op, pixels, weights.outputs)?, THREADS, &args)?;
    Ok(y)
}
