//! Attention layers: to a sequence's own past over pages, to a whole sequence, and across to another one.

use std::ops::Range;

use mstar_contract::CrossKv;
use mstar_kernels::ops::{
    self, AttnRow, AttnSpan, Epilogue, Input, KvRow, KvSize, PAGE_TOKENS, PackedLinear, Reach, RopeAngles, RopePairs,
};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};

use super::BatchRows;

/// How an attention layer's width is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub queries: usize,
    /// Key and value heads; divides the query heads.
    pub keys: usize,
    /// Width of a head.
    pub width: usize,
}

/// A rotary embedding as one pass applies it.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// The angles of the pass's tokens.
    pub angles: &'a RopeAngles,
    /// Which elements make a pair.
    pub pairs: RopePairs,
}

/// Attention of a sequence to itself.
#[derive(Clone, Debug)]
pub struct SelfAttention {
    /// The division of queries, keys and values.
    pub heads: Heads,
    /// Queries, keys and values in one, in this order.
    pub qkv: PackedLinear,
    /// Back to the width outside.
    pub out: PackedLinear,
}

/// Attention of a sequence to another one.
#[derive(Clone, Debug)]
pub struct CrossAttention {
    /// The division of queries, keys and values.
    pub heads: Heads,
    /// Queries.
    pub q: PackedLinear,
    /// Keys and values of the other sequence in one, in this order.
    pub kv: PackedLinear,
    /// Back to the width outside.
    pub out: PackedLinear,
}

// --- impl Heads ---

impl Heads {
    fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }
}

// --- impl SelfAttention ---

impl SelfAttention {
    /// Appends the batch's keys and values to their pages and returns `residual` plus the layer's output for `x`.
    pub fn paged(
        &self,
        cx: &Cx,
        (x, residual): (Input<'_>, &Tensor),
        rows: &BatchRows<'_>,
        turn: Option<Turn<'_>>,
        (layer, pages): (usize, &mut KvPages),
    ) -> Result<Tensor, KernelError> {
        let qkv = ops::linear_of(cx, x, &self.qkv, Epilogue::default())?;
        let turn = turn.map(|Turn { angles, pairs }| (angles, pairs));
        let q = pages.append_joined(cx, layer, &qkv, turn, &rows.kept)?;
        let mixed = ops::paged_attention(cx, &q, pages, layer, &rows.causal, self.heads.scale())?;
        close(cx, &mixed, &self.out, residual)
    }

    /// Returns `residual` plus the layer's output for whole sequences of `length` rows each, which see all of
    /// themselves and nothing of each other.
    pub fn whole(&self, cx: &Cx, (x, residual): (Input<'_>, &Tensor), length: usize) -> Result<Tensor, KernelError> {
        let qkv = ops::linear_of(cx, x, &self.qkv, Epilogue::default())?;
        let count = qkv.dims()[0] / length.max(1);
        let span = |i: usize| i * length..(i + 1) * length;
        let spans: Vec<AttnSpan> =
            (0..count).map(|i| AttnSpan { rows: span(i), keys: span(i), reach: Reach::Full }).collect();
        let Heads { keys, width, .. } = self.heads;
        let mixed = ops::attention_joined(cx, &qkv, (keys, width), &spans, self.heads.scale())?;
        close(cx, &mixed, &self.out, residual)
    }
}

// --- impl CrossAttention ---

impl CrossAttention {
    /// Returns the keys and values of a sequence to attend across to, as pages of their own, filled once.
    pub fn keys_values(&self, cx: &Cx, context: &Tensor) -> Result<(Tensor, Tensor), KernelError> {
        let kv = ops::linear(cx, context, &self.kv)?;
        let count = context.shape().height();
        let mut pages = KvPages::unzeroed(cx, self.size(count))?;
        let table = table(count);
        pages.append_pairs(cx, 0, &kv, &[KvRow { rows: 0..count, table: &table, first: 0 }])?;
        Ok(pages.into_parts())
    }

    /// Returns `residual` plus the layer's output for `x`. Each range of rows attends across to what stands with it;
    /// the layer's keys and values are those of index `layer`.
    pub fn forward(
        &self,
        cx: &Cx,
        (x, residual): (Input<'_>, &Tensor),
        rows: &[(Range<usize>, &CrossKv)],
        layer: usize,
    ) -> Result<Tensor, KernelError> {
        let q = ops::linear_of(cx, x, &self.q, Epilogue::default())?;
        let q = q.reshape([residual.shape().height(), self.heads.queries, self.heads.width])?;
        let mut mixed = Vec::with_capacity(rows.len());
        for (range, cross) in rows {
            let q = q.rows(range.clone())?;
            let Some((keys, values)) = cross.layers.get(layer) else {
                mixed.push(ops::scale(cx, &q, 0.0)?);
                continue;
            };
            let pages = KvPages::from_parts(self.size(cross.rows), keys.clone(), values.clone())?;
            let table = table(cross.rows);
            let row = AttnRow { rows: 0..range.len(), table: &table, kv_len: cross.rows, reach: Reach::Full };
            mixed.push(ops::paged_attention(cx, &q, &pages, 0, &[row], self.heads.scale())?);
        }
        let mixed = match &mixed[..] {
            [one] => one.clone(),
            all => ops::concat_rows(cx, &all.iter().collect::<Vec<_>>())?,
        };
        close(cx, &mixed, &self.out, residual)
    }

    fn size(&self, count: usize) -> KvSize {
        KvSize { layers: 1, pages: count.div_ceil(PAGE_TOKENS), heads: self.heads.keys, head_dim: self.heads.width }
    }
}

/// Returns the table of pages that lie in the order of their tokens.
fn table(count: usize) -> Vec<u32> {
    (0u32..).take(count.div_ceil(PAGE_TOKENS)).collect()
}

/// Joins the heads of each row, projects back and adds the residual.
fn close(cx: &Cx, mixed: &Tensor, out: &PackedLinear, residual: &Tensor) -> Result<Tensor, KernelError> {
    let joined = mixed.reshape([mixed.dims()[0], mixed.dims()[1] * mixed.dims()[2]])?;
    let residual = Epilogue { residual: Some(residual), ..Epilogue::default() };
    ops::linear_with(cx, &joined, out, residual)
}
