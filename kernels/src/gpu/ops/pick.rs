//! The greatest entries of rows: a block per row.

use std::sync::Arc;

use super::{THREADS, narrow, result};
use crate::gpu::Gpu;
use crate::{DType, KernelError, Tensor};

/// The `k` greatest entries of every row, falling, and their places.
pub(crate) fn top_k(gpu: &Arc<Gpu>, x: &Tensor, k: usize) -> Result<(Tensor, Tensor), KernelError> {
    let op = "top_k";
    let (rows, width) = (narrow(op, "rows", x.shape().height())?, narrow(op, "width", x.shape().width())?);
    let shape = x.shape().with_width(k);
    let (values, to_values) = result(gpu, op, DType::F32, shape)?;
    let (places, to_places) = result(gpu, op, DType::U32, shape)?;
    let args = [x.at(gpu, op, DType::F32)?, to_values, to_places, width.into(), narrow(op, "k", k)?.into()];
    gpu.launch(op, [rows, 1, 1], THREADS, &args)?;
    Ok((values, places))
}

/// The place of the greatest entry of every row, read back.
pub(crate) fn argmax(gpu: &Arc<Gpu>, x: &Tensor) -> Result<Vec<u32>, KernelError> {
    let (_, places) = top_k(gpu, x, 1)?;
    Ok(places.to_host()?.u32s()?.to_vec())
}
