//! Sums, products, functions, and conversions of elements.

use std::sync::Arc;

use super::{THREADS, count, items, result};
use crate::gpu::{Arg, Gpu};
use crate::{DType, KernelError, Tensor};

/// `kernel` ("add" or "mul") of each element of `a` and that of `b`, which may be one row for all.
pub(crate) fn zip(
    gpu: &Arc<Gpu>,
    op: &'static str,
    kernel: &'static str,
    a: &Tensor,
    b: &Tensor,
) -> Result<Tensor, KernelError> {
    let (out, at) = result(gpu, op, DType::F32, a.shape())?;
    let args = [a.at(gpu, op, DType::F32)?, b.at(gpu, op, DType::F32)?, at, count(a.len()), count(b.len())];
    gpu.launch(kernel, items(op, a.len())?, THREADS, &args)?;
    Ok(out)
}

/// x * factor.
pub(crate) fn scale(gpu: &Arc<Gpu>, x: &Tensor, factor: f32) -> Result<Tensor, KernelError> {
    let (out, at) = result(gpu, "scale", DType::F32, x.shape())?;
    let args = [x.at(gpu, "scale", DType::F32)?, at, count(x.len()), factor.into()];
    gpu.launch("scale", items("scale", x.len())?, THREADS, &args)?;
    Ok(out)
}

/// The function of maths.cuh with this number, of every element.
pub(crate) fn activate(gpu: &Arc<Gpu>, op: &'static str, function: u32, x: &Tensor) -> Result<Tensor, KernelError> {
    let (out, at) = result(gpu, op, DType::F32, x.shape())?;
    let args = [x.at(gpu, op, DType::F32)?, at, count(x.len()), function.into()];
    gpu.launch("activate", items(op, x.len())?, THREADS, &args)?;
    Ok(out)
}

/// silu(gate) * up.
pub(crate) fn silu_mul(gpu: &Arc<Gpu>, gate: &Tensor, up: &Tensor) -> Result<Tensor, KernelError> {
    let op = "silu_mul";
    let (out, at) = result(gpu, op, DType::F32, gate.shape())?;
    let args = [gate.at(gpu, op, DType::F32)?, up.at(gpu, op, DType::F32)?, at, count(gate.len())];
    gpu.launch(op, items(op, gate.len())?, THREADS, &args)?;
    Ok(out)
}

/// silu of the first half of each row, times the second; a half is `width` wide.
pub(crate) fn silu_mul_halves(gpu: &Arc<Gpu>, x: &Tensor, width: usize) -> Result<Tensor, KernelError> {
    let op = "silu_mul_halves";
    let (out, at) = result(gpu, op, DType::F32, x.shape().with_width(width))?;
    let args = [x.at(gpu, op, DType::F32)?, at, count(out.len()), count(width)];
    gpu.launch(op, items(op, out.len())?, THREADS, &args)?;
    Ok(out)
}

/// x + sin(alpha x)^2 / (alpha + 1e-9).
pub(crate) fn snake(gpu: &Arc<Gpu>, x: &Tensor, alpha: &Tensor) -> Result<Tensor, KernelError> {
    let op = "snake";
    let (out, at) = result(gpu, op, DType::F32, x.shape())?;
    let args = [x.at(gpu, op, DType::F32)?, alpha.at(gpu, op, DType::F32)?, at, count(x.len()), count(alpha.len())];
    gpu.launch(op, items(op, x.len())?, THREADS, &args)?;
    Ok(out)
}

/// Rounds to `bf16`.
pub(crate) fn to_bf16(gpu: &Arc<Gpu>, x: &Tensor) -> Result<Tensor, KernelError> {
    convert(gpu, "to_bf16", x, DType::F32, DType::BF16)
}

/// Widens to `f32`.
pub(crate) fn to_f32(gpu: &Arc<Gpu>, x: &Tensor) -> Result<Tensor, KernelError> {
    convert(gpu, "to_f32", x, DType::BF16, DType::F32)
}

fn convert(gpu: &Arc<Gpu>, kernel: &'static str, x: &Tensor, from: DType, to: DType) -> Result<Tensor, KernelError> {
    let (out, at) = result(gpu, kernel, to, x.shape())?;
    let args: [Arg; 3] = [x.at(gpu, kernel, from)?, at, count(x.len())];
    gpu.launch(kernel, items(kernel, x.len())?, THREADS, &args)?;
    Ok(out)
}
