//! Linear layers: by the driver's library where there is one, by our own kernel elsewhere.

use std::sync::Arc;

use super::{THREADS, count, few, flags, items, narrow, optional, result, to_bf16};
use crate::gpu::{Arg, Gpu, Product};
use crate::{DType, KernelError, Shape, Tensor};

/// Rows and outputs of a tile; see tile.cuh.
pub(super) const TILE: usize = 64;

/// A layer's weights on a device, and its bias.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    /// `[outputs][inputs]` of `f32` or `bf16`; with steps `[outputs][blocks][32]` of signed bytes.
    pub(crate) weight: &'a Tensor,
    /// A scale and a minimum of each block, `[outputs][blocks][2]`.
    pub(crate) steps: Option<&'a Tensor>,
    pub(crate) bias: Option<&'a Tensor>,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

/// What follows the product.
#[derive(Clone, Copy)]
pub(crate) struct Behind<'a> {
    /// The function's number in maths.cuh.
    pub(crate) function: u32,
    pub(crate) residual: Option<&'a Tensor>,
}

// --- impl Weights ---

impl Weights<'_> {
    /// Of three kernels the one for these weights, and where weights, steps and bias lie.
    pub(super) fn args(
        &self,
        gpu: &Gpu,
        op: &'static str,
        [f32, bf16, blocks]: [&'static str; 3],
    ) -> Result<(&'static str, [Arg; 3]), KernelError> {
        let kernel = match self.weight.dtype() {
            DType::F32 => f32,
            DType::BF16 => bf16,
            _ => blocks,
        };
        let weight = self.weight.at(gpu, op, self.weight.dtype())?;
        Ok((kernel, [weight, optional(gpu, op, self.steps)?, optional(gpu, op, self.bias)?]))
    }
}

/// activation(x W^T + bias) + residual, for `x` of shape `[.., inputs]`.
pub(crate) fn linear(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weights: Weights<'_>,
    behind: Behind<'_>,
) -> Result<Tensor, KernelError> {
    if let Some(y) = by_library(gpu, x, weights, behind)? {
        return Ok(y);
    }
    let op = "linear";
    let shape = x.shape().with_width(weights.outputs);
    let (y, at) = result(gpu, op, DType::F32, shape)?;
    let (kernel, [weight, steps, bias]) = weights.args(gpu, op, ["linear_f32", "linear_bf16", "linear_blocks"])?;
    let args = [
        x.at(gpu, op, DType::F32)?,
        weight,
        steps,
        bias,
        optional(gpu, op, behind.residual)?,
        at,
        count(shape.height()),
        narrow(op, "inputs", weights.inputs)?.into(),
        narrow(op, "outputs", weights.outputs)?.into(),
        behind.function.into(),
        flags(weights.bias.is_some(), behind.residual.is_some()),
    ];
    gpu.launch(kernel, tiles(op, shape.height(), weights.outputs)?, THREADS, &args)?;
    Ok(y)
}

/// Blocks of tiles: rows along x, outputs along y.
pub(super) fn tiles(op: &'static str, rows: usize, outputs: usize) -> Result<[u32; 3], KernelError> {
    Ok([narrow(op, "rows", rows.div_ceil(TILE))?, few(op, "tiles of outputs", outputs.div_ceil(TILE))?, 1])
}

/// Nothing where there is no library, or where it has no algorithm for the shape.
fn by_library(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    weights: Weights<'_>,
    behind: Behind<'_>,
) -> Result<Option<Tensor>, KernelError> {
    let op = "linear";
    let Some(multiple) = gpu.product_rows() else { return Ok(None) };
    let Weights { weight, inputs, outputs, .. } = weights;
    // Rows that start at multiples of 16 bytes are what its fast algorithms ask for.
    if weights.steps.is_some() || x.is_empty() || !inputs.is_multiple_of(8) || !outputs.is_multiple_of(8) {
        return Ok(None);
    }
    let (rows, halves) = (x.shape().height(), weight.dtype() == DType::BF16);
    let padded = rows.next_multiple_of(multiple);
    let x = padded_rows(gpu, x, (rows, padded, inputs), halves)?;
    let y = Tensor::unwritten(gpu, DType::F32, [padded, outputs])?;
    let dtype = weight.dtype();
    let (Arg::Pointer(from), Arg::Pointer(by), Arg::Pointer(to)) =
        (x.at(gpu, op, dtype)?, weight.at(gpu, op, dtype)?, y.at(gpu, op, DType::F32)?)
    else {
        return Ok(None);
    };
    let product = Product { rows: padded, inputs, outputs, halves, x: from, weight: by, y: to };
    if !gpu.multiply(&product)? {
        return Ok(None);
    }
    let kept = y.rows(0..rows)?;
    finish(gpu, &kept, weights, behind)?;
    Ok(Some(kept))
}

/// `x` as the library takes it: of the weights' type, with rows of zeros behind its own.
fn padded_rows(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    (rows, padded, inputs): (usize, usize, usize),
    halves: bool,
) -> Result<Tensor, KernelError> {
    let flat = x.reshape([rows, inputs])?;
    let own = if halves { to_bf16(gpu, &flat)? } else { flat };
    if rows == padded {
        return Ok(own);
    }
    let whole = Tensor::zeros_of(gpu, own.dtype(), Shape::from([padded, inputs]))?;
    let (to, from) = (whole.at(gpu, "linear", own.dtype())?, own.at(gpu, "linear", own.dtype())?);
    if let (Arg::Pointer(to), Arg::Pointer(from)) = (to, from) {
        gpu.copy_at((to, from), own.byte_len())?;
    }
    Ok(whole)
}

/// Bias, activation and residual, in place.
fn finish(gpu: &Arc<Gpu>, y: &Tensor, weights: Weights<'_>, behind: Behind<'_>) -> Result<(), KernelError> {
    let op = "linear";
    if weights.bias.is_none() && behind.function == 0 && behind.residual.is_none() {
        return Ok(());
    }
    let args = [
        y.at(gpu, op, DType::F32)?,
        optional(gpu, op, weights.bias)?,
        optional(gpu, op, behind.residual)?,
        count(y.len()),
        count(weights.outputs),
        behind.function.into(),
        flags(weights.bias.is_some(), behind.residual.is_some()),
    ];
    gpu.launch("finish", items(op, y.len())?, THREADS, &args)
}
