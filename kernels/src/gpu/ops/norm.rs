//! Normalisation of rows: a block per row.

use std::sync::Arc;

use super::{flags, narrow, optional, result, row_threads};
use crate::gpu::Gpu;
use crate::{DType, KernelError, Tensor};

/// x / sqrt(mean(x^2) + eps) * (plus + weight).
pub(crate) fn rms_norm(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    plus: f32,
) -> Result<Tensor, KernelError> {
    let op = "rms_norm";
    let (rows, width) = (narrow(op, "rows", x.shape().height())?, narrow(op, "width", x.shape().width())?);
    let (out, at) = result(gpu, op, DType::F32, x.shape())?;
    let args = [x.at(gpu, op, DType::F32)?, weight.at(gpu, op, DType::F32)?, at, width.into(), eps.into(), plus.into()];
    gpu.launch(op, [rows, 1, 1], row_threads(x.shape().width()), &args)?;
    Ok(out)
}

/// (x - mean) / sqrt(variance + eps), with what there is of weight and bias.
pub(crate) fn layer_norm(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor, KernelError> {
    let op = "layer_norm";
    let (rows, width) = (narrow(op, "rows", x.shape().height())?, narrow(op, "width", x.shape().width())?);
    let (out, at) = result(gpu, op, DType::F32, x.shape())?;
    let args = [
        x.at(gpu, op, DType::F32)?,
        optional(gpu, op, weight)?,
        optional(gpu, op, bias)?,
        at,
        width.into(),
        eps.into(),
        flags(weight.is_some(), bias.is_some()),
    ];
    gpu.launch(op, [rows, 1, 1], row_threads(x.shape().width()), &args)?;
    Ok(out)
}
