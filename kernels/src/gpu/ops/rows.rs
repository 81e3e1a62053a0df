//! Rows and columns gathered, joined and turned.

use std::ops::Range;
use std::sync::Arc;

use super::{THREADS, count, items, narrow, result};
use crate::gpu::{Arg, Gpu};
use crate::{DType, KernelError, Shape, Tensor};

/// Side of a tile of the transposition.
const TILE: usize = 32;

/// Rows of `width` elements of a table, `f32` or `bf16`, by id, as `f32` of the given shape.
pub(crate) fn gather(
    gpu: &Arc<Gpu>,
    op: &'static str,
    table: &Tensor,
    ids: &[u32],
    shape: Shape,
) -> Result<Tensor, KernelError> {
    let kernel = if table.dtype() == DType::BF16 { "gather_bf16" } else { "gather_f32" };
    let dtype = if table.dtype() == DType::BF16 { DType::BF16 } else { DType::F32 };
    let (out, at) = result(gpu, op, DType::F32, shape)?;
    let args = [
        table.at(gpu, op, dtype)?,
        Arg::Pointer(gpu.staged(op, bytemuck::cast_slice(ids))?),
        at,
        count(out.len()),
        count(out.len() / ids.len().max(1)),
    ];
    gpu.launch(kernel, items(op, out.len())?, THREADS, &args)?;
    Ok(out)
}

/// The named rows of the outermost dimension.
pub(crate) fn take_rows(gpu: &Arc<Gpu>, x: &Tensor, rows: &[usize]) -> Result<Tensor, KernelError> {
    let ids = rows.iter().map(|&row| narrow("take_rows", "row", row)).collect::<Result<Vec<u32>, _>>()?;
    x.wants("take_rows", DType::F32)?;
    gather(gpu, "take_rows", x, &ids, x.shape().with_first(rows.len()))
}

/// A range of the innermost dimension.
pub(crate) fn columns(gpu: &Arc<Gpu>, x: &Tensor, range: Range<usize>) -> Result<Tensor, KernelError> {
    let out = Tensor::unwritten(gpu, DType::F32, x.shape().with_width(range.len()))?;
    copy_columns(gpu, "columns", (x, range.start), (&out, 0), range.len())?;
    Ok(out)
}

/// Parts side by side.
pub(crate) fn concat_columns(gpu: &Arc<Gpu>, parts: &[&Tensor], shape: Shape) -> Result<Tensor, KernelError> {
    let out = Tensor::unwritten(gpu, DType::F32, shape)?;
    let mut start = 0;
    for part in parts {
        copy_columns(gpu, "concat_columns", (part, 0), (&out, start), part.shape().width())?;
        start += part.shape().width();
    }
    Ok(out)
}

/// Parts one after the other.
pub(crate) fn concat_rows(gpu: &Arc<Gpu>, parts: &[&Tensor], shape: Shape) -> Result<Tensor, KernelError> {
    let op = "concat_rows";
    let (out, at) = result(gpu, op, DType::F32, shape)?;
    let Arg::Pointer(mut to) = at else { return Ok(out) };
    for part in parts {
        if let Arg::Pointer(from) = part.at(gpu, op, DType::F32)? {
            gpu.copy_at((to, from), part.byte_len())?;
        }
        to += part.byte_len() as u64;
    }
    Ok(out)
}

/// Exchanges the two dimensions of a matrix.
pub(crate) fn transpose(gpu: &Arc<Gpu>, x: &Tensor) -> Result<Tensor, KernelError> {
    let op = "transpose";
    let (height, width) = (x.dims()[0], x.dims()[1]);
    let tiles = narrow(op, "tiles", height.div_ceil(TILE) * width.div_ceil(TILE))?;
    let (out, at) = result(gpu, op, DType::F32, [width, height])?;
    let args =
        [x.at(gpu, op, DType::F32)?, at, narrow(op, "height", height)?.into(), narrow(op, "width", width)?.into()];
    gpu.launch(op, [tiles, 1, 1], THREADS, &args)?;
    Ok(out)
}

fn copy_columns(
    gpu: &Arc<Gpu>,
    op: &'static str,
    (x, from): (&Tensor, usize),
    (out, to): (&Tensor, usize),
    width: usize,
) -> Result<(), KernelError> {
    let elements = x.shape().height() * width;
    let args = [
        x.at(gpu, op, DType::F32)?,
        out.at(gpu, op, DType::F32)?,
        count(elements),
        count(width),
        count(x.shape().width()),
        count(from),
        count(out.shape().width()),
        count(to),
    ];
    gpu.launch("copy_columns", items(op, elements)?, THREADS, &args)
}
