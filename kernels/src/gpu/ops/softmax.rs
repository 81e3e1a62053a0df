//! Softmax and its logarithm: a block per row.

use std::sync::Arc;

use super::{narrow, result, row_threads};
use crate::gpu::Gpu;
use crate::{DType, KernelError, Tensor};

/// `kernel` ("softmax" or "log_softmax") of every row.
pub(crate) fn softmax(gpu: &Arc<Gpu>, kernel: &'static str, x: &Tensor) -> Result<Tensor, KernelError> {
    let (rows, width) = (narrow(kernel, "rows", x.shape().height())?, narrow(kernel, "width", x.shape().width())?);
    let (out, at) = result(gpu, kernel, DType::F32, x.shape())?;
    let args = [x.at(gpu, kernel, DType::F32)?, at, width.into()];
    gpu.launch(kernel, [rows, 1, 1], row_threads(x.shape().width()), &args)?;
    Ok(out)
}
