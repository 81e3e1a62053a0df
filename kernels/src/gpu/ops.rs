//! The operations on a device: what each passes to its kernel. Shapes were checked by the interface in [`crate::ops`];
//! here addresses are taken, results made, and extents narrowed to what kernels count in.

use std::sync::Arc;

use super::driver::Arg;
use super::handle::Gpu;
use crate::error::below;
use crate::{DType, KernelError, Tensor};

mod attention;
mod conv1d;
mod conv2d;
mod elementwise;
mod group_norm;
mod linear;
mod norm;
mod pick;
mod rope;
mod rows;
mod softmax;
mod spectrum;
mod voice;

pub(crate) use attention::{Layer, copy_page, kv_append, paged_attention};
pub(crate) use conv1d::{conv1d, depthwise_conv1d};
pub(crate) use conv2d::conv2d;
pub(crate) use elementwise::{activate, scale, silu_mul, silu_mul_halves, snake, to_bf16, to_f32, zip};
pub(crate) use group_norm::group_norm;
pub(crate) use linear::{Behind, Weights, linear};
pub(crate) use norm::{layer_norm, rms_norm};
pub(crate) use pick::{argmax, top_k};
pub(crate) use rope::{Turns, rope};
pub(crate) use rows::{columns, concat_columns, concat_rows, gather, take_rows, transpose};
pub(crate) use softmax::softmax;
pub(crate) use spectrum::{Fourier, Frames, log_mel};
pub(crate) use voice::{normal, voice_spectrum};

/// Threads of a block where each has one item.
const THREADS: u32 = 256;
/// What an argument that a kernel does not look at points to.
const NOWHERE: Arg = Arg::Pointer(0);

/// Blocks for `count` items, one thread each.
fn items(op: &'static str, count: usize) -> Result<[u32; 3], KernelError> {
    Ok([narrow(op, "items", count.div_ceil(THREADS as usize))?, 1, 1])
}

/// Threads of a block that reduces a row: they depend on its width alone.
fn row_threads(width: usize) -> u32 {
    (width.div_ceil(4).next_multiple_of(32)).clamp(32, 512) as u32
}

/// An extent as kernels count it.
fn narrow(op: &'static str, what: &'static str, value: usize) -> Result<u32, KernelError> {
    below(op, what, value, i32::MAX as usize)?;
    Ok(value as u32)
}

/// Blocks along y or z, of which there are fewer than along x.
fn few(op: &'static str, what: &'static str, value: usize) -> Result<u32, KernelError> {
    below(op, what, value, 1 << 16)?;
    Ok(value as u32)
}

fn count(value: usize) -> Arg {
    Arg::U64(value as u64)
}

/// The address of a vector that may be missing.
fn optional(gpu: &Gpu, op: &'static str, tensor: Option<&Tensor>) -> Result<Arg, KernelError> {
    tensor.map_or(Ok(NOWHERE), |tensor| tensor.at(gpu, op, DType::F32))
}

/// Bits that say which of two optional inputs there are.
fn flags(first: bool, second: bool) -> Arg {
    Arg::U32(u32::from(first) | u32::from(second) << 1)
}

/// A result for a kernel to write, and its address.
fn result(
    gpu: &Arc<Gpu>,
    op: &'static str,
    dtype: DType,
    shape: impl Into<crate::Shape>,
) -> Result<(Tensor, Arg), KernelError> {
    let made = Tensor::unwritten(gpu, dtype, shape)?;
    let at = made.at(gpu, op, dtype)?;
    Ok((made, at))
}
