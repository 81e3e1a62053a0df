//! Attention over paged keys and values, for decode, prefill in one go or in chunks, and whole sequences alike.
//!
//! A query meets its keys in blocks of sixteen, and in tiles of such blocks, that are aligned to positions, first to last, so
//! its result depends on neither the other queries nor on how its tokens were grouped: scores are chains over the width, and
//! the output is one chain over the keys, scaled anew before a tile that holds a greater score than all before it.

use std::ops::Range;

use half::bf16;

use super::kv::{KvPages, KvRow, KvSize, PAGE_TOKENS};
use crate::cx::Cpu;
use crate::error::{below, need};
use crate::isa::Lanes;
use crate::pool::Disjoint;
use crate::{Cx, DType, KernelError, Tensor, gpu};

mod lines;
use lines::{Line, Lines, most_lines};

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Full,
    /// Those up to its own position.
    Causal,
    /// The last so many up to its own position, which counts.
    Window(usize),
    /// Those up to the end of its own block of so many positions: text before, and all of the block that is decoded. Only
    /// whole blocks may be appended at a time, unless the sequence ends: a query sees no key that is yet to come, so that
    /// one of a block that was cut would see fewer than had it come whole.
    Blocks(usize),
}

/// Queries of one sequence: rows `rows` of the batch. Unless the reach is full they are the last of the `kv_len`
/// positions, whose keys and values were appended before.
#[derive(Clone, Debug)]
pub struct AttnRow<'a> {
    /// The queries' rows in the batch; parts are ascending and do not overlap.
    pub rows: Range<usize>,
    /// The sequence's pages, in the order of its tokens.
    pub table: &'a [u32],
    /// Keys of the sequence.
    pub kv_len: usize,
    /// Which of them a query sees.
    pub reach: Reach,
}

/// Queries `rows` that look at rows `keys` of plain keys and values.
#[derive(Clone, Debug)]
pub struct AttnSpan {
    /// The queries' rows; spans are ascending and do not overlap.
    pub rows: Range<usize>,
    /// The keys' rows. Unless the reach is full, the queries are the last of them.
    pub keys: Range<usize>,
    /// Which of the keys a query sees.
    pub reach: Reach,
}

/// softmax(q k^T * scale) v of one layer's pages. `q` is `[rows, heads, head_dim]`, where `heads` is a multiple of the
/// pages' heads; a row that no part names, or that sees no key, gets zeros.
pub fn paged_attention(
    cx: &Cx,
    q: &Tensor,
    kv: &KvPages,
    layer: usize,
    rows: &[AttnRow<'_>],
    scale: f32,
) -> Result<Tensor, KernelError> {
    let size = kv.size();
    below("paged_attention", "layer", layer, size.layers)?;
    let heads_fit = q.shape().rank() == 3 && size.heads > 0 && q.dims()[1].is_multiple_of(size.heads);
    let rule = "q is [rows, a multiple of the pages' heads, head_dim]";
    need(heads_fit && q.dims()[2] == size.head_dim, "paged_attention", rule, &[q.shape()])?;
    validate(q.dims()[0], size, rows)?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::paged_attention(gpu, q, &kv.on_gpu(gpu, "paged_attention", layer)?, rows, scale);
    }
    let cpu = cx.cpu_for("paged_attention")?;
    let shared = Shared { q: q.f32s()?, heads: q.dims()[1], size, scale };
    let mut out = Tensor::written(q.shape(), |out: &mut [f32]| out.fill(0.0))?;
    match kv.dtype() {
        DType::BF16 => shared.attend(cpu, kv.layer::<bf16>(layer)?, rows, out.f32s_mut()?),
        _ => shared.attend(cpu, kv.layer::<f32>(layer)?, rows, out.f32s_mut()?),
    }
    Ok(out)
}

/// softmax(q k^T * scale) v of plain tensors, span by span: `q` is `[rows, heads, head_dim]`, `k` and `v` are
/// `[keys, kv heads, head_dim]`.
pub fn attention(
    cx: &Cx,
    q: &Tensor,
    (k, v): (&Tensor, &Tensor),
    spans: &[AttnSpan],
    scale: f32,
) -> Result<Tensor, KernelError> {
    let fits = k.shape().rank() == 3 && k.shape() == v.shape();
    need(fits, "attention", "k and v are [keys, kv heads, head_dim]", &[k.shape(), v.shape()])?;
    let spread = Spread::of(spans, k.dims()[0])?;
    let mut kv = KvPages::unzeroed(cx, spread.size(k.dims()[1], k.dims()[2]))?;
    kv.append(cx, 0, (k, v), &spread.kept())?;
    paged_attention(cx, q, &kv, 0, &spread.rows(), scale)
}

/// [`attention`] of queries, keys and values side by side, `[rows, (heads + 2 * kv heads) * head_dim]`; returns
/// `[rows, heads, head_dim]`.
pub fn attention_joined(
    cx: &Cx,
    qkv: &Tensor,
    (kv_heads, head_dim): (usize, usize),
    spans: &[AttnSpan],
    scale: f32,
) -> Result<Tensor, KernelError> {
    let spread = Spread::of(spans, qkv.shape().height())?;
    let mut kv = KvPages::unzeroed(cx, spread.size(kv_heads, head_dim))?;
    let q = kv.append_joined(cx, 0, qkv, None, &spread.kept())?;
    paged_attention(cx, &q, &kv, 0, &spread.rows(), scale)
}

/// Spans whose keys lie in pages of their own, one after the other.
struct Spread<'a> {
    spans: &'a [AttnSpan],
    tables: Vec<Vec<u32>>,
    pages: usize,
}

// --- impl Spread ---

impl<'a> Spread<'a> {
    fn of(spans: &'a [AttnSpan], keys: usize) -> Result<Self, KernelError> {
        let mut tables: Vec<Vec<u32>> = Vec::with_capacity(spans.len());
        let mut pages = 0;
        for span in spans {
            below("attention", "end of the keys", span.keys.end, keys + 1)?;
            let count = span.keys.len().div_ceil(PAGE_TOKENS);
            tables.push((pages..pages + count).map(|page| page as u32).collect());
            pages += count;
        }
        Ok(Self { spans, tables, pages })
    }

    fn size(&self, heads: usize, head_dim: usize) -> KvSize {
        KvSize { layers: 1, pages: self.pages, heads, head_dim }
    }

    fn kept(&self) -> Vec<KvRow<'_>> {
        let parts = self.spans.iter().zip(&self.tables);
        parts.map(|(span, table)| KvRow { rows: span.keys.clone(), table, first: 0 }).collect()
    }

    fn rows(&self) -> Vec<AttnRow<'_>> {
        let parts = self.spans.iter().zip(&self.tables);
        parts
            .map(|(span, table)| AttnRow { rows: span.rows.clone(), table, kv_len: span.keys.len(), reach: span.reach })
            .collect()
    }
}

fn validate(count: usize, size: KvSize, rows: &[AttnRow<'_>]) -> Result<(), KernelError> {
    let mut next = 0;
    for part in rows {
        below("paged_attention", "end of the part before", next, part.rows.start + 1)?;
        below("paged_attention", "row", part.rows.end, count + 1)?;
        below("paged_attention", "start", part.rows.start, part.rows.end + 1)?;
        if part.reach != Reach::Full {
            below("paged_attention", "queries", part.rows.len(), part.kv_len + 1)?;
        }
        let used = part.kv_len.div_ceil(PAGE_TOKENS);
        below("paged_attention", "pages", used, part.table.len() + 1)?;
        for &page in &part.table[..used] {
            below("paged_attention", "page", page as usize, size.pages)?;
        }
        next = part.rows.end;
    }
    Ok(())
}

// --- impl AttnRow ---

impl AttnRow<'_> {
    /// Returns the keys that the query of row `row` sees.
    fn keys_of(&self, row: usize) -> Range<usize> {
        let end = self.kv_len - self.rows.len().min(self.kv_len) + (row - self.rows.start) + 1;
        match self.reach {
            Reach::Full => 0..self.kv_len,
            Reach::Causal => 0..end,
            Reach::Window(count) => end.saturating_sub(count)..end,
            Reach::Blocks(count) => 0..end.next_multiple_of(count.max(1)).min(self.kv_len),
        }
    }
}

/// What all tasks of one call share.
struct Shared<'a> {
    q: &'a [f32],
    heads: usize,
    size: KvSize,
    scale: f32,
}

/// One task: some lines, which are queries times heads, of one sequence and one key-value head.
struct Task {
    part: usize,
    head: usize,
    lines: Range<usize>,
}

impl Shared<'_> {
    fn attend<T: Lanes>(&self, cpu: Cpu<'_>, (keys, values): (&[T], &[T]), rows: &[AttnRow<'_>], out: &mut [f32]) {
        let tasks = self.tasks(most_lines(cpu), rows);
        let out = Disjoint::new(out);
        cpu.pool.each(tasks.len(), |index| {
            let task = &tasks[index];
            let part = &rows[task.part];
            let lines: Vec<Line> = task.lines.clone().map(|line| self.line(part, task.head, line)).collect();
            let (q, size, scale) = (self.q, self.size, self.scale);
            let (head, table) = (task.head, part.table);
            cpu.launch(Lines { q, keys, values, size, scale, head, table, lines: &lines, out: &out });
        });
    }

    fn tasks(&self, most: usize, rows: &[AttnRow<'_>]) -> Vec<Task> {
        let group = self.heads / self.size.heads;
        let mut tasks = Vec::new();
        for (part, row) in rows.iter().enumerate() {
            let count = row.rows.len() * group;
            for head in 0..self.size.heads {
                let starts = (0..count).step_by(most);
                tasks.extend(starts.map(|start| Task { part, head, lines: start..count.min(start + most) }));
            }
        }
        tasks
    }

    fn line(&self, part: &AttnRow<'_>, head: usize, line: usize) -> Line {
        let group = self.heads / self.size.heads;
        let row = part.rows.start + line / group;
        let at = (row * self.heads + head * group + line % group) * self.size.head_dim;
        Line { at, keys: part.keys_of(row) }
    }
}

#[cfg(test)]
mod tests;
