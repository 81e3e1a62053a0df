//! The inner kernel of attention: some queries over the keys of one head.
//!
//! A block of keys, or values, is met by all groups of lines before the next: it comes from memory once.

use std::ops::Range;

use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, Lanes, interleave};
use crate::maths;
use crate::ops::kv::KvSize;
use crate::pool::Disjoint;
use crate::scratch::Scratch;

/// Groups of lines that share one pass over the keys.
const GROUPS: usize = 4;
/// Pages are scattered: what lies so many bytes ahead in the order of the tokens is asked for early. Pages often lie a
/// power of two apart, where only the first-level cache has room for several.
const AHEAD: usize = 12 << 10;

/// A query of one head, and the keys it sees.
pub(super) struct Line {
    /// Where its elements start, in the queries and in the output.
    pub(super) at: usize,
    pub(super) keys: Range<usize>,
}

/// Some lines over one head of a sequence, and the outputs of all.
pub(super) struct Lines<'a, T> {
    pub(super) q: &'a [f32],
    pub(super) keys: &'a [T],
    pub(super) values: &'a [T],
    pub(super) size: KvSize,
    pub(super) scale: f32,
    pub(super) head: usize,
    pub(super) table: &'a [u32],
    pub(super) lines: &'a [Line],
    pub(super) out: &'a Disjoint<'a, f32>,
}

/// Lines whose sums fit the registers together, filled up to a number of rows that there is code for.
struct Group<'a> {
    lines: &'a [Line],
    rows: usize,
    /// Blocks of keys that at least one line sees a part of.
    blocks: Range<usize>,
    /// Those that all lines see wholly.
    whole: Range<usize>,
    /// Their elements, `[width][rows]`.
    q: &'a mut [f32],
    /// `[blocks][rows]`.
    scores: &'a mut [[f32; LANES]],
    /// The greatest so far, `[rows]`.
    most: &'a mut [[f32; LANES]],
    /// `[rows][padded width]`.
    out: &'a mut [f32],
}

/// What a group is made of, before there is memory for it.
struct Plan<'a> {
    lines: &'a [Line],
    rows: usize,
    blocks: Range<usize>,
    whole: Range<usize>,
}

/// Returns how many lines one task takes at most.
pub(super) fn most_lines(cpu: Cpu<'_>) -> usize {
    cpu.launch(MostLines)
}

struct MostLines;

impl Kernel for MostLines {
    type Out = usize;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> usize {
        GROUPS * I::ROW_TILES[0]
    }
}

impl<T: Lanes> Kernel for Lines<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let plans: Vec<Plan<'_>> =
            self.lines.chunks(I::ROW_TILES[0]).map(|lines| Plan::of(I::ROW_TILES, lines)).collect();
        let width = (self.size.head_dim, self.size.padded());
        let mut memory = Scratch::<f32>::take(plans.iter().map(|plan| plan.numbers(width)).sum::<usize>() + LANES);
        let start = memory.as_ptr().align_offset(size_of::<[f32; LANES]>()).min(LANES);
        let mut memory = &mut memory[start..];
        let mut groups: Vec<Group<'_>> = Vec::with_capacity(plans.len());
        for plan in &plans {
            let (own, rest) = memory.split_at_mut(plan.numbers(width));
            memory = rest;
            groups.push(self.group(isa, plan, own));
        }
        let first = groups.iter().map(|group| group.blocks.start).min().unwrap_or(0);
        let end = groups.iter().map(|group| group.blocks.end).max().unwrap_or(0);
        let blocks = first.min(end)..end;
        for block in blocks.clone() {
            let mut later = self.later(&blocks, block, Side::Keys);
            for group in groups.iter_mut().filter(|group| group.blocks.contains(&block)) {
                self.score(isa, group, block, later);
                later = &[];
            }
        }
        for group in &mut groups {
            group.exponentials(isa);
        }
        for block in blocks.clone() {
            let mut later = self.later(&blocks, block, Side::Values);
            for group in groups.iter_mut().filter(|group| group.blocks.contains(&block)) {
                self.weigh(isa, group, block, later);
                later = &[];
            }
        }
        for group in &groups {
            self.hand_out(isa, group);
        }
    }
}

/// Which half of a page.
#[derive(Clone, Copy)]
enum Side {
    Keys,
    Values,
}

impl<T: Lanes> Lines<'_, T> {
    /// Lays a group out in its memory.
    #[inline(always)]
    fn group<'b, I: Isa>(&self, isa: I, plan: &Plan<'b>, memory: &'b mut [f32]) -> Group<'b> {
        let (rows, width) = (plan.rows, self.size.head_dim);
        let (scores, rest) = memory.split_at_mut(plan.blocks.len() * rows * LANES);
        let (most, rest) = rest.split_at_mut(rows * LANES);
        let (out, q) = rest.split_at_mut(rows * self.size.padded());
        let q = &mut q[..width * rows];
        let (scores, most) = (scores.as_chunks_mut().0, most.as_chunks_mut().0);
        out.fill(0.0);
        most.fill([f32::NEG_INFINITY; LANES]);
        // Rows without a line compute with the last one's.
        let mut queries = [&self.q[..0]; LANES];
        for (r, query) in queries[..rows].iter_mut().enumerate() {
            *query = &self.q[plan.lines[r.min(plan.lines.len() - 1)].at..][..width];
        }
        interleave(isa, &queries[..rows], q);
        let Plan { lines, ref blocks, ref whole, .. } = *plan;
        Group { lines, rows, blocks: blocks.clone(), whole: whole.clone(), q, scores, most, out }
    }

    /// Stores a group's outputs, each divided by its sum.
    #[inline(always)]
    fn hand_out<I: Isa>(&self, isa: I, group: &Group<'_>) {
        let (width, padded) = (self.size.head_dim, self.size.padded());
        for ((line, row), [inverse, ..]) in group.lines.iter().zip(group.out.chunks_exact(padded)).zip(&*group.most) {
            // SAFETY: parts do not overlap (validated), and a line is one (row, head) of one task.
            let out = unsafe { self.out.part(line.at, width) };
            for (out, part) in out.chunks_mut(LANES).zip(row.as_chunks().0) {
                isa.store_part(isa.mul(isa.load(part), isa.splat(*inverse)), out);
            }
        }
    }

    /// One head's keys in the page of a block, `[width][16 tokens]`.
    #[inline(always)]
    fn keys_of(&self, block: usize) -> &[[T; LANES]] {
        let run = self.table[block] as usize * self.size.heads + self.head;
        self.keys[run * self.size.key_run()..][..self.size.key_run()].as_chunks().0
    }

    /// One head's values in the page of a block, `[16 tokens][width]`.
    #[inline(always)]
    fn values_of(&self, block: usize) -> &[[T; LANES]] {
        let run = self.table[block] as usize * self.size.heads + self.head;
        self.values[run * self.size.value_run()..][..self.size.value_run()].as_chunks().0
    }

    /// What will be read some blocks after this, to be asked for while this is computed: behind the last keys come the
    /// first values.
    fn later(&self, blocks: &Range<usize>, block: usize, side: Side) -> &[[T; LANES]] {
        let ahead = (AHEAD / (self.size.value_run() * size_of::<T>())).max(1);
        let later = block + ahead;
        match side {
            Side::Keys if later < blocks.end => self.keys_of(later),
            Side::Keys => self.values_of((blocks.start + later - blocks.end).min(blocks.end - 1)),
            Side::Values if later < blocks.end => self.values_of(later),
            Side::Values => &[],
        }
    }

    #[inline(always)]
    fn score<I: Isa>(&self, isa: I, group: &mut Group<'_>, block: usize, later: &[[T; LANES]]) {
        if I::ROW_TILES[0] >= 16 {
            match group.rows {
                16 => self.score_rows::<I, 16>(isa, group, block, later),
                8 => self.score_rows::<I, 8>(isa, group, block, later),
                4 => self.score_rows::<I, 4>(isa, group, block, later),
                _ => self.score_rows::<I, 1>(isa, group, block, later),
            }
        } else if I::ROW_TILES[0] >= 6 {
            match group.rows {
                6 => self.score_rows::<I, 6>(isa, group, block, later),
                4 => self.score_rows::<I, 4>(isa, group, block, later),
                2 => self.score_rows::<I, 2>(isa, group, block, later),
                _ => self.score_rows::<I, 1>(isa, group, block, later),
            }
        } else {
            match group.rows {
                2 => self.score_rows::<I, 2>(isa, group, block, later),
                _ => self.score_rows::<I, 1>(isa, group, block, later),
            }
        }
    }

    /// The sixteen scores of a block, for each line: one chain over the width.
    #[inline(always)]
    fn score_rows<I: Isa, const R: usize>(&self, isa: I, group: &mut Group<'_>, block: usize, later: &[[T; LANES]]) {
        let (mut sums, keys) = ([isa.splat(0.0); R], self.keys_of(block));
        // Without anything to ask for, ask for what is at hand.
        let later = if later.len() < keys.len() { keys } else { later };
        for ((q, keys), later) in group.q.as_chunks::<R>().0.iter().zip(keys).zip(later) {
            isa.prefetch(later);
            let keys = T::load(isa, keys);
            for (sum, &q) in sums.iter_mut().zip(q) {
                *sum = isa.fma(isa.splat(q), keys, *sum);
            }
        }
        let scores = &mut group.scores[(block - group.blocks.start) * R..][..R];
        let most = &mut group.most[..R];
        if group.whole.contains(&block) {
            for ((sum, scores), most) in sums.into_iter().zip(scores).zip(most) {
                let score = isa.mul(sum, isa.splat(self.scale));
                isa.store(score, scores);
                isa.store(isa.max(isa.load(most), score), most);
            }
            return;
        }
        for ((r, sum), (scores, most)) in sums.into_iter().enumerate().zip(scores.iter_mut().zip(most)) {
            isa.store(isa.mul(sum, isa.splat(self.scale)), scores);
            if let Some(line) = group.lines.get(r) {
                mask(scores, block, &line.keys);
            }
            isa.store(isa.max(isa.load(most), isa.load(scores)), most);
        }
    }

    /// Adds a block's values, weighed, to the outputs: one chain over the keys that a line sees.
    #[inline(always)]
    fn weigh<I: Isa>(&self, isa: I, group: &mut Group<'_>, block: usize, later: &[[T; LANES]]) {
        let (width, values, rows) = (self.size.padded(), self.values_of(block), group.rows);
        let later = if later.len() < values.len() { values } else { later };
        let weights = &group.scores[(block - group.blocks.start) * rows..][..rows];
        if !group.whole.contains(&block) {
            for ((line, weights), out) in group.lines.iter().zip(weights).zip(group.out.chunks_exact_mut(width)) {
                weigh_some(isa, weights, part_of(block, &line.keys), values, out);
            }
            return;
        }
        let out = &mut group.out[..];
        if I::ROW_TILES[0] >= 16 {
            match rows {
                16 => weigh::<I, T, 16>(isa, of(weights), (values, later), out),
                8 => weigh::<I, T, 8>(isa, of(weights), (values, later), out),
                4 => weigh::<I, T, 4>(isa, of(weights), (values, later), out),
                _ => weigh::<I, T, 1>(isa, of(weights), (values, later), out),
            }
        } else if I::ROW_TILES[0] >= 6 {
            match rows {
                6 => weigh::<I, T, 6>(isa, of(weights), (values, later), out),
                4 => weigh::<I, T, 4>(isa, of(weights), (values, later), out),
                2 => weigh::<I, T, 2>(isa, of(weights), (values, later), out),
                _ => weigh::<I, T, 1>(isa, of(weights), (values, later), out),
            }
        } else {
            match rows {
                2 => weigh::<I, T, 2>(isa, of(weights), (values, later), out),
                _ => weigh::<I, T, 1>(isa, of(weights), (values, later), out),
            }
        }
    }
}

/// The first `R` lines' weights.
#[inline(always)]
fn of<const R: usize>(weights: &[[f32; LANES]]) -> &[[f32; LANES]; R] {
    weights.first_chunk().expect("invariant: a group has a row for each of its lines")
}

/// Adds the values of a block's tokens, weighed, to `R` outputs; asks for what comes later meanwhile.
#[inline(always)]
fn weigh<I: Isa, T: Lanes, const R: usize>(
    isa: I,
    weights: &[[f32; LANES]; R],
    (values, later): (&[[T; LANES]], &[[T; LANES]]),
    out: &mut [f32],
) {
    let columns = values.len() / LANES;
    for column in 0..columns {
        let mut sums = [isa.splat(0.0); R];
        for (sum, row) in sums.iter_mut().zip(out.as_chunks::<LANES>().0.chunks_exact(columns)) {
            *sum = isa.load(&row[column]);
        }
        for token in 0..LANES {
            let at = token * columns + column;
            isa.prefetch(&later[at]);
            let value = T::load(isa, &values[at]);
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = isa.fma(isa.splat(weights[token]), value, *sum);
            }
        }
        for (&sum, row) in sums.iter().zip(out.as_chunks_mut::<LANES>().0.chunks_exact_mut(columns)) {
            isa.store(sum, &mut row[column]);
        }
    }
}

/// Adds the values of the tokens `seen` of a block, weighed, to one output.
#[inline(always)]
fn weigh_some<I: Isa, T: Lanes>(
    isa: I,
    weights: &[f32; LANES],
    seen: Range<usize>,
    values: &[[T; LANES]],
    out: &mut [f32],
) {
    let columns = values.len() / LANES;
    for (column, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut sum = isa.load(out);
        for token in seen.clone() {
            let value = T::load(isa, &values[token * columns + column]);
            sum = isa.fma(isa.splat(weights[token]), value, sum);
        }
        isa.store(sum, out);
    }
}

/// The tokens of a block that lie within `keys`.
#[inline(always)]
fn part_of(block: usize, keys: &Range<usize>) -> Range<usize> {
    let start = block * LANES;
    let first = keys.start.clamp(start, start + LANES) - start;
    let end = keys.end.clamp(start, start + LANES) - start;
    first..end.max(first)
}

#[inline(always)]
fn mask(scores: &mut [f32; LANES], block: usize, keys: &Range<usize>) {
    let seen = part_of(block, keys);
    if seen != (0..LANES) {
        scores[..seen.start].fill(f32::NEG_INFINITY);
        scores[seen.end..].fill(f32::NEG_INFINITY);
    }
}

// --- impl Plan, Group ---

impl<'a> Plan<'a> {
    fn of(tiles: &[usize], lines: &'a [Line]) -> Self {
        let rows = tiles.iter().copied().rfind(|&rows| rows >= lines.len()).unwrap_or(lines.len());
        let seen = lines.iter().filter(|line| !line.keys.is_empty());
        let first = seen.clone().map(|line| line.keys.start / LANES).min().unwrap_or(0);
        let end = seen.map(|line| line.keys.end.div_ceil(LANES)).max().unwrap_or(0);
        let whole = |line: &Line| line.keys.start.div_ceil(LANES)..line.keys.end / LANES;
        let start = lines.iter().map(|line| whole(line).start).max().unwrap_or(0);
        let whole = start..lines.iter().map(|line| whole(line).end).min().unwrap_or(0);
        Self { lines, rows, blocks: first.min(end)..end, whole }
    }

    /// Numbers of memory: scores, maxima, outputs and queries.
    fn numbers(&self, (width, padded): (usize, usize)) -> usize {
        let vectors = (self.blocks.len() + 1) * self.rows;
        vectors * LANES + self.rows * (padded + width).next_multiple_of(LANES)
    }
}

impl Group<'_> {
    /// Turns scores into exponentials, under their maximum; puts 1 / sum, or 0 where there is no score, where the
    /// maximum was.
    #[inline(always)]
    fn exponentials<I: Isa>(&mut self, isa: I) {
        for (r, (line, most)) in self.lines.iter().zip(self.most.iter_mut()).enumerate() {
            let start = (line.keys.start / LANES).saturating_sub(self.blocks.start);
            let count = line.keys.end.div_ceil(LANES).saturating_sub(self.blocks.start + start);
            let own = self.scores.get_mut(start * self.rows + r..).unwrap_or_default();
            let greatest = isa.greatest(isa.load(most));
            most[0] = exponentials(isa, own, (self.rows, count), greatest);
        }
    }
}

/// Turns scores into exponentials, under their maximum; returns 1 / sum, or 0 where there is no score. A line's `count`
/// blocks lie `step` apart.
#[inline(always)]
fn exponentials<I: Isa>(isa: I, scores: &mut [[f32; LANES]], (step, count): (usize, usize), most: f32) -> f32 {
    if most == f32::NEG_INFINITY {
        return 0.0;
    }
    let (most, mut sum) = (isa.splat(most), isa.splat(0.0));
    for block in scores.iter_mut().step_by(step).take(count) {
        let e = maths::exp_below(isa, isa.sub(isa.load(block), most));
        sum = isa.add(sum, e);
        isa.store(e, block);
    }
    1.0 / isa.sum(sum)
}
