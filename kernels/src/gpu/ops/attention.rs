//! Keys and values into their pages, and attention over them.

use std::sync::Arc;

use super::{NOWHERE, THREADS, count, few, items, narrow};
use crate::gpu::{Arg, Gpu};
use crate::ops::{AttnRow, KvSize, Reach};
use crate::{DType, KernelError, Tensor};

/// Keys of a part, and threads of its block; see attention.cu.
const PART: usize = 256;
/// Queries times heads of a block.
const LINES: usize = 8;
/// Elements of the widest head.
const WIDEST: usize = 256;
/// With fewer blocks than this the parts of a sequence are computed by blocks of their own: a GPU has about so many
/// multiprocessors.
const MANY_BLOCKS: usize = 128;

/// One layer of pages: addresses of its keys and values.
pub(crate) struct Layer {
    keys: Arg,
    values: Arg,
    dtype: DType,
    size: KvSize,
}

impl Layer {
    /// Finds the layer in pages that are read.
    pub(crate) fn of(
        gpu: &Gpu,
        op: &'static str,
        (keys, values): (&Tensor, &Tensor),
        size: KvSize,
        layer: usize,
    ) -> Result<Self, KernelError> {
        let dtype = keys.dtype();
        let (keys, values) = (keys.rows(layer..layer + 1)?, values.rows(layer..layer + 1)?);
        Ok(Self { keys: keys.at(gpu, op, dtype)?, values: values.at(gpu, op, dtype)?, dtype, size })
    }
}

/// Stores `k` and `v`, `[rows, heads, head_dim]`, at slots (row, page, place in the page).
pub(crate) fn kv_append(
    gpu: &Arc<Gpu>,
    layer: &Layer,
    (k, v): (&Tensor, &Tensor),
    slots: &[(usize, usize, usize)],
) -> Result<(), KernelError> {
    let (op, size) = ("kv_append", layer.size);
    let words = slots.iter().flat_map(|&(row, page, token)| [row as u32, page as u32, token as u32]);
    let words: Vec<u32> = words.collect();
    let elements = slots.len() * size.heads * size.head_dim;
    let args = [
        k.at(gpu, op, DType::F32)?,
        v.at(gpu, op, DType::F32)?,
        layer.keys,
        layer.values,
        Arg::Pointer(gpu.staged("slots", bytemuck::cast_slice(&words))?),
        count(elements),
        narrow(op, "heads", size.heads)?.into(),
        narrow(op, "head_dim", size.head_dim)?.into(),
        narrow(op, "head_dim", size.padded())?.into(),
    ];
    let kernel = if layer.dtype == DType::BF16 { "kv_append_bf16" } else { "kv_append_f32" };
    gpu.launch(kernel, items(op, elements)?, THREADS, &args)
}

/// Copies page `from` to page `to` in every layer of keys or of values, `[layers, pages, ..]`.
pub(crate) fn copy_page(store: &mut Tensor, from: usize, to: usize) -> Result<(), KernelError> {
    let (op, dtype, dims) = ("kv_copy_page", store.dtype(), [store.dims()[0], store.dims()[1]]);
    let Some(gpu) = store.gpu().map(Arc::clone) else { return Ok(()) };
    let Arg::Pointer(at) = store.at_mut(&gpu, op, dtype)? else { return Ok(()) };
    let page = store.byte_len() / (dims[0] * dims[1]).max(1);
    for layer in 0..if from == to { 0 } else { dims[0] } {
        let place = |page_index: usize| at + ((layer * dims[1] + page_index) * page) as u64;
        gpu.copy_at((place(to), place(from)), page)?;
    }
    Ok(())
}

/// softmax(q k^T * scale) v of one layer; rows that no part names get zeros.
pub(crate) fn paged_attention(
    gpu: &Arc<Gpu>,
    q: &Tensor,
    layer: &Layer,
    rows: &[AttnRow<'_>],
    scale: f32,
) -> Result<Tensor, KernelError> {
    let (op, size, heads) = ("paged_attention", layer.size, q.dims()[1]);
    crate::error::below(op, "head_dim", size.head_dim, WIDEST + 1)?;
    let out = Tensor::zeros_of(gpu, DType::F32, q.shape())?;
    let plan = Plan::new(rows, heads / size.heads)?;
    if plan.tasks.is_empty() || out.is_empty() {
        return Ok(out);
    }
    let tables = Arg::Pointer(gpu.staged("tables", bytemuck::cast_slice(&plan.tables))?);
    let tasks = Arg::Pointer(gpu.staged("tasks", bytemuck::cast_slice(&plan.tasks))?);
    let blocks = plan.tasks.len() * size.heads;
    let split = if blocks < MANY_BLOCKS && plan.parts > 1 { plan.parts } else { 0 };
    // Of the parts' outputs and sums, only those that the tasks name are written and read.
    let lines = q.dims()[0] * heads * split;
    let parts = Tensor::unwritten(gpu, DType::F32, [lines, size.head_dim])?;
    let sums = Tensor::unwritten(gpu, DType::F32, [lines, 2])?;
    let (to_parts, to_sums) = match split {
        0 => (NOWHERE, NOWHERE),
        _ => (parts.at(gpu, op, DType::F32)?, sums.at(gpu, op, DType::F32)?),
    };
    let to_out = out.at(gpu, op, DType::F32)?;
    let (width, kv_heads) = (Arg::U32(size.head_dim as u32), Arg::U32(narrow(op, "heads", size.heads)?));
    let heads = Arg::U32(narrow(op, "heads", heads)?);
    let split_arg = Arg::U32(narrow(op, "parts", split)?);
    let args = [
        q.at(gpu, op, DType::F32)?,
        layer.keys,
        layer.values,
        tables,
        tasks,
        to_out,
        to_parts,
        to_sums,
        heads,
        kv_heads,
        width,
        Arg::U32(size.padded() as u32),
        split_arg,
        scale.into(),
    ];
    let kernel = if layer.dtype == DType::BF16 { "attention_bf16" } else { "attention_f32" };
    let (across, down) = (narrow(op, "tasks", plan.tasks.len())?, few(op, "heads", size.heads)?);
    gpu.launch(kernel, [across, down, few(op, "parts", split.max(1))?], PART as u32, &args)?;
    if split > 0 {
        let args = [to_parts, to_sums, tasks, to_out, heads, kv_heads, width, split_arg];
        gpu.launch("attention_merge", [across, down, LINES as u32], PART as u32, &args)?;
    }
    Ok(out)
}

/// What the blocks of a call do.
struct Plan {
    tables: Vec<u32>,
    tasks: Vec<[u32; 8]>,
    /// Parts of the longest sequence.
    parts: usize,
}

impl Plan {
    /// Cuts rows times heads of a group in lines of at most [`LINES`].
    fn new(rows: &[AttnRow<'_>], group: usize) -> Result<Self, KernelError> {
        let op = "paged_attention";
        let mut plan = Self { tables: Vec::new(), tasks: Vec::new(), parts: 0 };
        for part in rows {
            let table = narrow(op, "pages of all", plan.tables.len())?;
            plan.tables.extend_from_slice(part.table);
            plan.parts = plan.parts.max(part.kv_len.div_ceil(PART));
            let (reach, window) = match part.reach {
                Reach::Full => (0, 0),
                Reach::Causal => (1, 0),
                Reach::Window(count) => (2, count.min(u32::MAX as usize) as u32),
                Reach::Blocks(count) => (3, count.clamp(1, u32::MAX as usize) as u32),
            };
            let lines = part.rows.len() * group;
            let (first_row, rows) = (narrow(op, "row", part.rows.start)?, narrow(op, "rows", part.rows.len())?);
            let keys = narrow(op, "keys", part.kv_len)?;
            for first in (0..lines).step_by(LINES) {
                let count = LINES.min(lines - first) as u32;
                plan.tasks.push([first_row, rows, keys, table, reach, window, first as u32, count]);
            }
        }
        Ok(plan)
    }
}
