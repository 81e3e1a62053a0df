//! The inner kernel of attention: some queries over the keys of one head.
//!
//! A tile of keys and values is met by all groups of lines before the next: it comes from memory once. Each line keeps the
//! greatest score so far, the sum of the powers under it, and its output, which are scaled anew when a tile holds a greater
//! one (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; FlashAttention's loop). Tiles are
//! aligned to positions, so that what a line goes through depends on the keys it sees alone.

use std::ops::Range;

use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, Lanes, interleave};
use crate::maths;
use crate::ops::kv::KvSize;
use crate::pool::Disjoint;
use crate::scratch::Scratch;

/// Blocks of a tile: its keys and values stay in the second-level cache, a group's scores in the first; what is done once per
/// tile is a small part.
const TILE: usize = 8;
/// Lines of a task, rounded up to whole groups: they share one pass over the keys.
const LINES: usize = 60;

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
    plan: Plan<'a>,
    /// Their elements times the scale and log2(e), `[width][rows]`.
    q: &'a mut [f32],
    /// `[rows][padded width]`.
    out: &'a mut [f32],
    /// The sums of powers, lane by lane, `[rows]`.
    sums: &'a mut [[f32; LANES]],
    /// The greatest scores, `[rows]`.
    most: &'a mut [f32],
}

/// What a group is made of, before there is memory for it.
struct Plan<'a> {
    lines: &'a [Line],
    rows: usize,
    /// Blocks of keys that at least one line sees a part of.
    blocks: Range<usize>,
    /// Those that all lines see wholly.
    whole: Range<usize>,
}

/// Scores of a group with a tile, then their powers: `[blocks][rows]`.
type Scores = [[[f32; LANES]; LANES]; TILE];

/// Each row's weights of a block, its values, and what to ask for meanwhile: as many as the values.
type Weighed<'a, T> = (&'a [[f32; LANES]; LANES], &'a [[T; LANES]], &'a [[T; LANES]]);

/// Returns how many lines one task takes at most.
pub(super) fn most_lines(cpu: Cpu<'_>) -> usize {
    cpu.launch(MostLines)
}

struct MostLines;

impl Kernel for MostLines {
    type Out = usize;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> usize {
        LINES.next_multiple_of(I::ROW_TILES[0])
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
        for plan in plans {
            let (own, rest) = memory.split_at_mut(plan.numbers(width));
            memory = rest;
            groups.push(self.group(isa, plan, own));
        }
        let first = groups.iter().map(|group| group.plan.blocks.start).min().unwrap_or(0);
        let end = groups.iter().map(|group| group.plan.blocks.end).max().unwrap_or(0);
        let mut scores: Scores = [[[0.0; LANES]; LANES]; TILE];
        for tile in first / TILE..end.div_ceil(TILE) {
            let mut ahead = true;
            for group in &mut groups {
                let plan = &group.plan;
                let blocks = plan.blocks.start.max(tile * TILE)..plan.blocks.end.min((tile + 1) * TILE);
                if !blocks.is_empty() {
                    self.meet(isa, group, blocks, ahead.then_some(end), &mut scores);
                    ahead = false;
                }
            }
        }
        for group in &groups {
            self.hand_out(isa, group);
        }
    }
}

impl<T: Lanes> Lines<'_, T> {
    /// Lays a group out in its memory.
    #[inline(always)]
    fn group<'b, I: Isa>(&self, isa: I, plan: Plan<'b>, memory: &'b mut [f32]) -> Group<'b> {
        let (rows, width) = (plan.rows, self.size.head_dim);
        let (sums, rest) = memory.split_at_mut(rows * LANES);
        let (out, rest) = rest.split_at_mut(rows * self.size.padded());
        let (q, rest) = rest.split_at_mut(width * rows);
        let (sums, most) = (sums.as_chunks_mut().0, &mut rest[..rows]);
        out.fill(0.0);
        sums.fill([0.0; LANES]);
        most.fill(f32::NEG_INFINITY);
        // Rows without a line take the last one's query; nothing of theirs is read.
        let mut queries = [&self.q[..0]; LANES];
        for (r, query) in queries[..rows].iter_mut().enumerate() {
            *query = &self.q[plan.lines[r.min(plan.lines.len() - 1)].at..][..width];
        }
        interleave(isa, &queries[..rows], q);
        // Scores become powers of two.
        let scale = isa.splat(self.scale * std::f32::consts::LOG2_E);
        for q in q.chunks_mut(LANES) {
            isa.store_part(isa.mul(isa.load_part(q, 0.0), scale), q);
        }
        Group { plan, q, out, sums, most }
    }

    /// Stores a group's outputs, each divided by its sum: zeros where a line saw nothing.
    #[inline(always)]
    fn hand_out<I: Isa>(&self, isa: I, group: &Group<'_>) {
        let (width, padded) = (self.size.head_dim, self.size.padded());
        for ((line, row), sums) in group.plan.lines.iter().zip(group.out.chunks_exact(padded)).zip(&*group.sums) {
            let sum = isa.sum(isa.load(sums));
            let inverse = isa.splat(if sum == 0.0 { 0.0 } else { 1.0 / sum });
            // SAFETY: parts do not overlap (validated), and a line is one (row, head) of one task.
            let out = unsafe { self.out.part(line.at, width) };
            for (out, part) in out.chunks_mut(LANES).zip(row.as_chunks().0) {
                isa.store_part(isa.mul(isa.load(part), inverse), out);
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

    /// Takes a group through the blocks of a tile that it sees. `ahead` is the end of all blocks where this group asks for
    /// the next tile meanwhile: pages are scattered, and no machine guesses where the next one lies.
    #[inline(always)]
    fn meet<I: Isa>(
        &self,
        isa: I,
        group: &mut Group<'_>,
        blocks: Range<usize>,
        ahead: Option<usize>,
        scores: &mut Scores,
    ) {
        let rows = group.plan.rows;
        let next = |block: usize| ahead.filter(|&end| block + TILE < end).map(|_| block + TILE);
        for (block, scores) in blocks.clone().zip(&mut *scores) {
            let keys = self.keys_of(block);
            // Without anything to ask for, ask for what is at hand.
            let later = next(block).map_or(keys, |block| self.keys_of(block));
            score(isa, group.q, rows, (keys, later), scores);
        }
        for r in 0..group.plan.lines.len() {
            group.powers(isa, r, &blocks, scores);
        }
        let start = group.plan.whole.start.clamp(blocks.start, blocks.end);
        let end = group.plan.whole.end.clamp(start, blocks.end);
        let mut parts: [Weighed<'_, T>; TILE] = [(&[[0.0; LANES]; LANES], &[], &[]); TILE];
        for ((block, scores), part) in blocks.clone().zip(&*scores).zip(&mut parts) {
            let values = self.values_of(block);
            *part = (scores, values, next(block).map_or(values, |block| self.values_of(block)));
        }
        for block in blocks.start..start {
            self.weigh_part(isa, group, block, &parts[block - blocks.start]);
        }
        weigh_rows(isa, rows, &parts[start - blocks.start..end - blocks.start], group.out);
        for block in end..blocks.end {
            self.weigh_part(isa, group, block, &parts[block - blocks.start]);
        }
    }

    /// Adds the values of a block that some lines see a part of, weighed, to their outputs.
    #[inline(always)]
    fn weigh_part<I: Isa>(&self, isa: I, group: &mut Group<'_>, block: usize, (weights, values, _): &Weighed<'_, T>) {
        let outs = group.out.chunks_exact_mut(self.size.padded());
        for ((line, weights), out) in group.plan.lines.iter().zip(*weights).zip(outs) {
            weigh_some(isa, weights, part_of(block, &line.keys), values, out);
        }
    }
}

#[inline(always)]
fn score<I: Isa, T: Lanes>(
    isa: I,
    q: &[f32],
    rows: usize,
    keys: (&[[T; LANES]], &[[T; LANES]]),
    scores: &mut [[f32; LANES]; LANES],
) {
    if I::ROW_TILES[0] >= 16 {
        match rows {
            16 => score_rows::<I, T, 16>(isa, q, keys, scores),
            8 => score_rows::<I, T, 8>(isa, q, keys, scores),
            4 => score_rows::<I, T, 4>(isa, q, keys, scores),
            _ => score_rows::<I, T, 1>(isa, q, keys, scores),
        }
    } else if I::ROW_TILES[0] >= 6 {
        match rows {
            6 => score_rows::<I, T, 6>(isa, q, keys, scores),
            4 => score_rows::<I, T, 4>(isa, q, keys, scores),
            2 => score_rows::<I, T, 2>(isa, q, keys, scores),
            _ => score_rows::<I, T, 1>(isa, q, keys, scores),
        }
    } else {
        match rows {
            2 => score_rows::<I, T, 2>(isa, q, keys, scores),
            _ => score_rows::<I, T, 1>(isa, q, keys, scores),
        }
    }
}

/// The sixteen scores of a block, for each row: one chain over the width.
#[inline(always)]
fn score_rows<I: Isa, T: Lanes, const R: usize>(
    isa: I,
    q: &[f32],
    (keys, later): (&[[T; LANES]], &[[T; LANES]]),
    scores: &mut [[f32; LANES]; LANES],
) {
    let mut sums = [isa.splat(0.0); R];
    // Two steps per turn: with one, the loop's own instructions cost some of the time.
    let (turns, last) = q.as_chunks::<R>().0.as_chunks::<2>();
    let (keys, last_key) = keys.as_chunks::<2>();
    let (later, _) = later.as_chunks::<2>();
    for ((q, keys), later) in turns.iter().zip(keys).zip(later) {
        for ((q, keys), later) in q.iter().zip(keys).zip(later) {
            isa.prefetch(later);
            add_products(isa, q, keys, &mut sums);
        }
    }
    for (q, keys) in last.iter().zip(last_key) {
        add_products(isa, q, keys, &mut sums);
    }
    for (sum, scores) in sums.into_iter().zip(scores) {
        isa.store(sum, scores);
    }
}

/// Adds an element of each row's query times the same of sixteen keys.
#[inline(always)]
fn add_products<I: Isa, T: Lanes, const R: usize>(isa: I, q: &[f32; R], keys: &[T; LANES], sums: &mut [I::V; R]) {
    let keys = T::load(isa, keys);
    for (sum, &q) in sums.iter_mut().zip(q) {
        *sum = isa.fma(isa.splat(q), keys, *sum);
    }
}

/// Adds the values of blocks that all lines see wholly.
#[inline(always)]
fn weigh_rows<I: Isa, T: Lanes>(isa: I, rows: usize, parts: &[Weighed<'_, T>], out: &mut [f32]) {
    if I::ROW_TILES[0] >= 16 {
        match rows {
            16 => weigh::<I, T, 16>(isa, parts, out),
            8 => weigh::<I, T, 8>(isa, parts, out),
            4 => weigh::<I, T, 4>(isa, parts, out),
            _ => weigh::<I, T, 1>(isa, parts, out),
        }
    } else if I::ROW_TILES[0] >= 6 {
        match rows {
            6 => weigh::<I, T, 6>(isa, parts, out),
            4 => weigh::<I, T, 4>(isa, parts, out),
            2 => weigh::<I, T, 2>(isa, parts, out),
            _ => weigh::<I, T, 1>(isa, parts, out),
        }
    } else {
        match rows {
            2 => weigh::<I, T, 2>(isa, parts, out),
            _ => weigh::<I, T, 1>(isa, parts, out),
        }
    }
}

/// Adds the values of some blocks' tokens, weighed, to `R` outputs.
#[inline(always)]
fn weigh<I: Isa, T: Lanes, const R: usize>(isa: I, parts: &[Weighed<'_, T>], out: &mut [f32]) {
    let Some((_, values, _)) = parts.first() else { return };
    let columns = values.len() / LANES;
    for column in 0..columns {
        let mut sums = [isa.splat(0.0); R];
        for (sum, row) in sums.iter_mut().zip(out.as_chunks::<LANES>().0.chunks_exact(columns)) {
            *sum = isa.load(&row[column]);
        }
        for (weights, values, later) in parts {
            let weights: &[[f32; LANES]; R] =
                weights.first_chunk().expect("invariant: no tile has more rows than lanes");
            weigh_block(isa, weights, (values, later), (columns, column), &mut sums);
        }
        for (&sum, row) in sums.iter().zip(out.as_chunks_mut::<LANES>().0.chunks_exact_mut(columns)) {
            isa.store(sum, &mut row[column]);
        }
    }
}

/// Adds one column of a block's values, weighed, to the sums of `R` rows.
#[inline(always)]
fn weigh_block<I: Isa, T: Lanes, const R: usize>(
    isa: I,
    weights: &[[f32; LANES]; R],
    (values, later): (&[[T; LANES]], &[[T; LANES]]),
    (columns, column): (usize, usize),
    sums: &mut [I::V; R],
) {
    // Two steps per turn, as in `score_rows`.
    let turns = values.chunks_exact(2 * columns).zip(later.chunks_exact(2 * columns));
    for (turn, (values, later)) in (0..LANES / 2).zip(turns) {
        for step in 0..2 {
            let at = step * columns + column;
            isa.prefetch(&later[at]);
            let (token, value) = (2 * turn + step, T::load(isa, &values[at]));
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = isa.fma(isa.splat(weights[token]), value, *sum);
            }
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

    /// Numbers of memory: sums, outputs, queries and greatest scores.
    fn numbers(&self, (width, padded): (usize, usize)) -> usize {
        (self.rows * (LANES + padded + width + 1)).next_multiple_of(LANES)
    }
}

impl Group<'_> {
    /// Turns a line's scores of the blocks of a tile into powers under the greatest score so far, and adds them up; what was
    /// summed under a lesser one is scaled first.
    #[inline(always)]
    fn powers<I: Isa>(&mut self, isa: I, r: usize, blocks: &Range<usize>, scores: &mut Scores) {
        let keys = &self.plan.lines[r].keys;
        let first = (keys.start / LANES).max(blocks.start);
        let own = first..keys.end.div_ceil(LANES).min(blocks.end);
        if keys.is_empty() || own.is_empty() {
            return;
        }
        let scores = &mut scores[first - blocks.start..own.end - blocks.start];
        let mut greatest = isa.splat(f32::NEG_INFINITY);
        for (block, scores) in own.zip(&mut *scores) {
            // What is not seen adds 2^-100, which vanishes in a sum of at least one; its value is never added.
            mask(&mut scores[r], block, keys);
            greatest = isa.max(greatest, isa.load(&scores[r]));
        }
        let most = self.most[r].max(isa.greatest(greatest));
        let mut sum = isa.load(&self.sums[r]);
        if most != self.most[r] {
            let padded = self.out.len() / self.plan.rows;
            let less = maths::exp2_below(isa, isa.splat(self.most[r] - most));
            for out in self.out[r * padded..][..padded].as_chunks_mut().0 {
                isa.store(isa.mul(isa.load(out), less), out);
            }
            sum = isa.mul(sum, less);
            self.most[r] = most;
        }
        // Under zero, scores of minus infinity alone become next to nothing instead of no number.
        let most = isa.splat(if most == f32::NEG_INFINITY { 0.0 } else { most });
        for scores in scores {
            let power = maths::exp2_below(isa, isa.sub(isa.load(&scores[r]), most));
            sum = isa.add(sum, power);
            isa.store(power, &mut scores[r]);
        }
        isa.store(sum, &mut self.sums[r]);
    }
}
