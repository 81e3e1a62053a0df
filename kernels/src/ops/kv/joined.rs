//! Queries, keys and values as one product leaves them, side by side: turned, stored and taken apart in one pass.

use std::ops::Range;

use half::bf16;

use super::slots::{PART, Slot, page_parts, whole_pages};
use super::{KvPages, KvRow, PAGE_TOKENS, Places};
use crate::cx::Cpu;
use crate::error::{below, need};
use crate::isa::{Isa, Kernel, Lanes};
use crate::ops::{
    self,
    rope::{RopeAngles, RopePairs, turn_head},
};
use crate::pool::Disjoint;
use crate::scratch::Scratch;
use crate::{Cx, DType, KernelError, Tensor};

/// Numbers from which on several threads are worth waking.
const SPLIT: usize = 16 << 10;

/// What all tasks of a call share.
struct Joined<'a, T> {
    /// `[rows, (queries + 2 * heads) * width]`.
    x: &'a [f32],
    rows: usize,
    queries: usize,
    turn: Option<(&'a RopeAngles, RopePairs)>,
    slots: &'a [Slot],
    places: Places<'a, T>,
    /// `[rows, queries, width]`; there need not be any.
    q: Disjoint<'a, f32>,
}

// --- impl KvPages ---

impl KvPages {
    /// Takes rows of queries, keys and values side by side, `[rows, (queries + 2 * heads) * head_dim]`: turns queries and
    /// keys by `turn`, stores keys and values as [`KvPages::append`] does, and returns the queries, `[rows, queries,
    /// head_dim]`.
    pub fn append_joined(
        &mut self,
        cx: &Cx,
        layer: usize,
        qkv: &Tensor,
        turn: Option<(&RopeAngles, RopePairs)>,
        rows: &[KvRow<'_>],
    ) -> Result<Tensor, KernelError> {
        below("kv_append_joined", "layer", layer, self.size.layers)?;
        let (heads, width) = (self.size.heads, self.size.head_dim);
        let all = if qkv.shape().rank() == 2 { qkv.dims()[1] / width } else { 0 };
        let fits = all > 2 * heads && all * width == qkv.shape().width();
        let rule = "the rows are queries, then keys and values of the pages' heads";
        need(fits, "kv_append_joined", rule, &[qkv.shape()])?;
        let (count, queries) = (qkv.dims()[0], all - 2 * heads);
        if let Some((angles, _)) = turn {
            angles.fit(count, width)?;
        }
        if cx.gpu().is_some() {
            let (q, k, v) = apart(cx, qkv, (queries, heads, width), turn)?;
            self.append(cx, layer, (&k, &v), rows)?;
            return Ok(q);
        }
        let cpu = cx.cpu_for("kv_append_joined")?;
        let (slots, x) = (&self.slots(count, rows)?, qkv.f32s()?);
        let shape = [count, queries, width];
        match self.dtype() {
            DType::BF16 => {
                let places = self.places::<bf16>(layer)?;
                Tensor::written(shape, |q| {
                    Joined { x, rows: count, queries, turn, slots, places, q: Disjoint::new(q) }.run(cpu);
                })
            }
            _ => {
                let places = self.places::<f32>(layer)?;
                Tensor::written(shape, |q| {
                    Joined { x, rows: count, queries, turn, slots, places, q: Disjoint::new(q) }.run(cpu);
                })
            }
        }
    }

    /// Takes rows of keys and values side by side, `[rows, 2 * heads * head_dim]`, and stores them as [`KvPages::append`]
    /// does.
    pub fn append_pairs(&mut self, cx: &Cx, layer: usize, kv: &Tensor, rows: &[KvRow<'_>]) -> Result<(), KernelError> {
        below("kv_append_pairs", "layer", layer, self.size.layers)?;
        let (heads, width) = (self.size.heads, self.size.head_dim);
        let fits = kv.shape().rank() == 2 && kv.shape().width() == 2 * heads * width;
        need(fits, "kv_append_pairs", "the rows are keys, then values of the pages' heads", &[kv.shape()])?;
        if cx.gpu().is_some() {
            let (k, v) = (cut(cx, kv, 0..heads, width)?, cut(cx, kv, heads..2 * heads, width)?);
            return self.append(cx, layer, (&k, &v), rows);
        }
        let cpu = cx.cpu_for("kv_append_pairs")?;
        let (slots, x, count) = (&self.slots(kv.dims()[0], rows)?, kv.f32s()?, kv.dims()[0]);
        let (queries, turn) = (0, None);
        match self.dtype() {
            DType::BF16 => {
                let places = self.places::<bf16>(layer)?;
                Joined { x, rows: count, queries, turn, slots, places, q: Disjoint::new(&mut []) }.run(cpu);
            }
            _ => {
                let places = self.places::<f32>(layer)?;
                Joined { x, rows: count, queries, turn, slots, places, q: Disjoint::new(&mut []) }.run(cpu);
            }
        }
        Ok(())
    }
}

/// Some heads of rows of heads side by side.
fn cut(cx: &Cx, x: &Tensor, heads: Range<usize>, width: usize) -> Result<Tensor, KernelError> {
    let columns = ops::columns(cx, x, heads.start * width..heads.end * width)?;
    columns.reshape([x.dims()[0], heads.len(), width])
}

/// Queries, keys and values by themselves, turned.
fn apart(
    cx: &Cx,
    qkv: &Tensor,
    (queries, heads, width): (usize, usize, usize),
    turn: Option<(&RopeAngles, RopePairs)>,
) -> Result<(Tensor, Tensor, Tensor), KernelError> {
    let cut = |heads: Range<usize>| cut(cx, qkv, heads, width);
    let k = cut(queries..queries + heads)?;
    let (q, v) = (cut(0..queries)?, cut(queries + heads..queries + 2 * heads)?);
    let Some((angles, pairs)) = turn else { return Ok((q, k, v)) };
    Ok((ops::rope(cx, &q, angles, pairs)?, ops::rope(cx, &k, angles, pairs)?, v))
}

// --- impl Joined ---

impl<T: Lanes> Joined<'_, T> {
    fn run(&self, cpu: Cpu<'_>) {
        let width = self.places.size.head_dim;
        let parts = page_parts(self.slots, self.places.size.heads * width);
        let height = (PART / (self.queries * width).max(1)).max(1);
        let blocks = if self.queries == 0 { 0 } else { self.rows.div_ceil(height) };
        let task = |task: usize| match task.checked_sub(blocks) {
            Some(part) => cpu.launch(Kept { joined: self, slots: parts[part] }),
            None => {
                let rows = task * height..self.rows.min((task + 1) * height);
                cpu.launch(Queries { joined: self, rows });
            }
        };
        if self.x.len() < SPLIT {
            (0..blocks + parts.len()).for_each(task);
        } else {
            cpu.pool.each(blocks + parts.len(), task);
        }
    }

    /// One head of a row, as it came.
    #[inline(always)]
    fn head(&self, row: usize, head: usize) -> &[f32] {
        let width = self.places.size.head_dim;
        &self.x[(row * (self.queries + 2 * self.places.size.heads) + head) * width..][..width]
    }

    /// One head of a row, turned: in `out`, unless it is not to be turned.
    #[inline(always)]
    fn turned<'b, I: Isa>(&'b self, isa: I, row: usize, head: usize, out: &'b mut [f32]) -> &'b [f32] {
        if self.turn.is_none() {
            return self.head(row, head);
        }
        self.turn(isa, row, head, out);
        out
    }

    #[inline(always)]
    fn turn<I: Isa>(&self, isa: I, row: usize, head: usize, out: &mut [f32]) {
        let x = self.head(row, head);
        match self.turn {
            Some((angles, pairs)) => turn_head(isa, x, (angles, row), pairs, out),
            None => out.copy_from_slice(x),
        }
    }
}

// --- tasks ---

/// One task: the queries of some rows.
struct Queries<'a, T> {
    joined: &'a Joined<'a, T>,
    rows: Range<usize>,
}

impl<T: Lanes> Kernel for Queries<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Joined { queries, ref places, ref q, .. } = *self.joined;
        let width = places.size.head_dim;
        for row in self.rows {
            // SAFETY: a row is one task.
            let out = unsafe { q.part(row * queries * width, queries * width) };
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                self.joined.turn(isa, row, head, out);
            }
        }
    }
}

/// One task: the keys and values of some tokens.
struct Kept<'a, T> {
    joined: &'a Joined<'a, T>,
    slots: &'a [Slot],
}

impl<T: Lanes> Kernel for Kept<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Joined { queries, ref places, .. } = *self.joined;
        let (heads, width) = (places.size.heads, places.size.head_dim);
        let mut turned = Scratch::<f32>::take(PAGE_TOKENS * width);
        for slots in whole_pages(self.slots) {
            for head in 0..heads {
                let mut keys = [&self.joined.x[..0]; PAGE_TOKENS];
                for ((slot, key), out) in slots.iter().zip(&mut keys).zip(turned.chunks_exact_mut(width)) {
                    *key = self.joined.turned(isa, slot.0, queries + head, out);
                    // SAFETY: a page is one task.
                    unsafe { places.put_value(head, *slot, self.joined.head(slot.0, queries + heads + head)) };
                }
                // SAFETY: as above.
                unsafe { places.put_keys(isa, head, slots, &keys) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{on_every_tier, random, same_bits};
    use crate::ops::{KvSize, columns, rope};

    const SIZE: KvSize = KvSize { layers: 2, pages: 40, heads: 2, head_dim: 20 };
    const QUERIES: usize = 4;

    /// The same by the operations one by one.
    fn one_by_one(
        (cx, pages): (&Cx, &mut KvPages),
        qkv: &Tensor,
        turn: Option<(&RopeAngles, RopePairs)>,
        rows: &[KvRow<'_>],
    ) -> Tensor {
        let part = |first: usize, heads: usize, turned: bool| {
            let x = columns(cx, qkv, first * 20..(first + heads) * 20).unwrap();
            let x = x.reshape([qkv.dims()[0], heads, 20]).unwrap();
            match turn {
                Some((angles, pairs)) if turned => rope(cx, &x, angles, pairs).unwrap(),
                _ => x,
            }
        };
        pages.append(cx, 1, (&part(QUERIES, 2, true), &part(QUERIES + 2, 2, false)), rows).unwrap();
        part(0, QUERIES, true)
    }

    #[test]
    fn one_pass_leaves_what_the_operations_leave_one_by_one() {
        for (count, dtype) in [(3, DType::F32), (3, DType::BF16), (300, DType::F32), (300, DType::BF16)] {
            let qkv = random(1, [count, (QUERIES + 4) * 20]);
            let positions: Vec<u32> = (5..5 + count as u32).collect();
            let angles = RopeAngles::new(&positions, &[1.0, 0.3, 0.1, 0.03, 0.01, 0.003]);
            let turns = [None, Some((&angles, RopePairs::Halves)), Some((&angles, RopePairs::Adjacent))];
            let table: Vec<u32> = (0..40).rev().collect();
            // The first row is computed but not kept.
            let rows = [KvRow { rows: 1..count, table: &table, first: 5 }];
            on_every_tier(|cx| {
                for turn in turns {
                    let (mut joined, mut parts) =
                        (KvPages::new(SIZE, dtype).unwrap(), KvPages::new(SIZE, dtype).unwrap());
                    let q = joined.append_joined(cx, 1, &qkv, turn, &rows).unwrap();
                    let want = one_by_one((cx, &mut parts), &qkv, turn, &rows);
                    same_bits(q.f32s().unwrap(), want.f32s().unwrap());
                    assert_eq!(q.dims(), want.dims());
                    let (joined, parts) = (joined.into_parts(), parts.into_parts());
                    assert!(joined.0.bytes() == parts.0.bytes() && joined.1.bytes() == parts.1.bytes());
                }
            });
        }
    }

    #[test]
    fn keys_and_values_side_by_side_are_stored_as_they_are_apart() {
        for (count, dtype) in [(3, DType::F32), (300, DType::F32), (300, DType::BF16)] {
            let kv = random(1, [count, 4 * 20]);
            let table: Vec<u32> = (0..40).rev().collect();
            let rows = [KvRow { rows: 1..count, table: &table, first: 5 }];
            on_every_tier(|cx| {
                let (mut joined, mut parts) = (KvPages::new(SIZE, dtype).unwrap(), KvPages::new(SIZE, dtype).unwrap());
                joined.append_pairs(cx, 1, &kv, &rows).unwrap();
                let half = |first: usize| cut(cx, &kv, first..first + 2, 20).unwrap();
                parts.append(cx, 1, (&half(0), &half(2)), &rows).unwrap();
                let (joined, parts) = (joined.into_parts(), parts.into_parts());
                assert!(joined.0.bytes() == parts.0.bytes() && joined.1.bytes() == parts.1.bytes());
                assert!(joined.0.f32s().is_err() || joined.0.f32s().unwrap().iter().any(|&x| x != 0.0));
            });
        }
    }

    #[test]
    fn rows_that_are_not_queries_keys_and_values_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let mut pages = KvPages::new(SIZE, DType::F32).unwrap();
        let row = [KvRow { rows: 0..2, table: &[0], first: 0 }];
        let refused = |pages: &mut KvPages, width: usize, layer: usize| {
            pages.append_joined(&cx, layer, &random(1, [2, width]), None, &row).is_err()
        };
        assert!(!refused(&mut pages, 120, 0));
        assert!(refused(&mut pages, 80, 0) && refused(&mut pages, 121, 0) && refused(&mut pages, 120, 2));
        let angles = RopeAngles::new(&[1], &[1.0]);
        let turn = Some((&angles, RopePairs::Halves));
        assert!(pages.append_joined(&cx, 0, &random(1, [2, 120]), turn, &row).is_err());
        assert!(pages.append_pairs(&cx, 0, &random(1, [2, 120]), &row).is_err());
        assert!(pages.append_pairs(&cx, 2, &random(1, [2, 80]), &row).is_err());
    }
}
