//! Convolution over time.

use std::sync::Arc;

use super::linear::{Behind, Weights, tiles};
use super::{NOWHERE, THREADS, count, flags, items, narrow, optional, result};
use crate::gpu::Gpu;
use crate::ops::Taps;
use crate::{DType, KernelError, Tensor};

/// A dense convolution of `x`, `[rows, channels]`; the weights' inputs are `[tap][channel]`.
pub(crate) fn conv1d(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weights: Weights<'_>,
    (taps, channels): (Taps, usize),
    behind: Behind<'_>,
) -> Result<Tensor, KernelError> {
    let op = "conv1d";
    let kernel = weights.inputs / channels.max(1);
    let rows = taps.outputs(x.dims()[0], kernel);
    let (y, at) = result(gpu, op, DType::F32, [rows, weights.outputs])?;
    let (name, [weight, steps, bias]) = weights.args(gpu, op, ["conv1d_f32", "conv1d_bf16", "conv1d_blocks"])?;
    let args = [
        x.at(gpu, op, DType::F32)?,
        weight,
        steps,
        bias,
        optional(gpu, op, behind.residual)?,
        at,
        count(rows),
        narrow(op, "rows", x.dims()[0])?.into(),
        narrow(op, "channels", channels)?.into(),
        narrow(op, "taps", kernel)?.into(),
        narrow(op, "stride", taps.stride)?.into(),
        narrow(op, "dilation", taps.dilation)?.into(),
        narrow(op, "padding", taps.padding.0)?.into(),
        narrow(op, "outputs", weights.outputs)?.into(),
        behind.function.into(),
        flags(weights.bias.is_some(), behind.residual.is_some()),
    ];
    gpu.launch(name, tiles(op, rows, weights.outputs)?, THREADS, &args)?;
    Ok(y)
}

/// Every channel of `x` on its own; `weight` is `[taps][channels]`.
pub(crate) fn depthwise_conv1d(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    taps: Taps,
) -> Result<Tensor, KernelError> {
    let op = "depthwise_conv1d";
    let (kernel, channels) = (weight.dims()[0], weight.dims()[1]);
    let rows = taps.outputs(x.dims()[0], kernel);
    let (y, at) = result(gpu, op, DType::F32, [rows, channels])?;
    let args = [
        x.at(gpu, op, DType::F32)?,
        weight.at(gpu, op, DType::F32)?,
        bias.map_or(Ok(NOWHERE), |bias| bias.at(gpu, op, DType::F32))?,
        at,
        count(y.len()),
        narrow(op, "rows", x.dims()[0])?.into(),
        narrow(op, "channels", channels)?.into(),
        narrow(op, "taps", kernel)?.into(),
        narrow(op, "stride", taps.stride)?.into(),
        narrow(op, "dilation", taps.dilation)?.into(),
        narrow(op, "padding", taps.padding.0)?.into(),
        flags(bias.is_some(), false),
    ];
    gpu.launch(op, items(op, y.len())?, THREADS, &args)?;
    Ok(y)
}
