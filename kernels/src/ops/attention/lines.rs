//! The inner kernel of attention: a few queries over the keys of one head.

use std::ops::Range;

use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, Lanes};
use crate::maths;
use crate::ops::kv::KvSize;

/// Heights a group of lines comes in, tallest first.
const HEIGHTS: [usize; 6] = [8, 6, 4, 3, 2, 1];

/// Pages are scattered: with few lines, which wait for memory, those of this many blocks ahead are asked for early.
const AHEAD: usize = 6;
const FEW: usize = 4;

/// A query of one head, and the keys it sees.
pub(super) struct Line {
    /// Where its elements start, in the queries and in the output.
    pub(super) at: usize,
    pub(super) keys: Range<usize>,
}

/// Some lines over one head of a sequence; returns their outputs, padded to whole vectors.
pub(super) struct Lines<'a, T> {
    pub(super) q: &'a [f32],
    pub(super) keys: &'a [T],
    pub(super) values: &'a [T],
    pub(super) size: KvSize,
    pub(super) scale: f32,
    pub(super) head: usize,
    pub(super) table: &'a [u32],
    pub(super) lines: &'a [Line],
}

/// Returns how many lines the tier's registers hold.
pub(super) fn most_lines(cpu: Cpu<'_>) -> usize {
    cpu.launch(MostLines)
}

struct MostLines;

impl Kernel for MostLines {
    type Out = usize;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> usize {
        if I::WIDE { 8 } else { 4 }
    }
}

impl<T: Lanes> Kernel for Lines<'_, T> {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) -> Vec<f32> {
        let width = self.size.padded();
        let mut out = vec![0.0; self.lines.len() * width];
        let (mut lines, mut rest) = (self.lines, &mut out[..]);
        while let Some(height) = HEIGHTS.into_iter().find(|&height| height <= lines.len()) {
            let (head, tail) = lines.split_at(height);
            let (out, after) = rest.split_at_mut(height * width);
            match height {
                8 => self.group::<I, 8>(isa, head, out),
                6 => self.group::<I, 6>(isa, head, out),
                4 => self.group::<I, 4>(isa, head, out),
                3 => self.group::<I, 3>(isa, head, out),
                2 => self.group::<I, 2>(isa, head, out),
                _ => self.group::<I, 1>(isa, head, out),
            }
            (lines, rest) = (tail, after);
        }
        out
    }
}

impl<T: Lanes> Lines<'_, T> {
    #[inline(always)]
    fn group<I: Isa, const R: usize>(&self, isa: I, lines: &[Line], out: &mut [f32]) {
        let seen = lines.iter().filter(|line| !line.keys.is_empty());
        let first = seen.clone().map(|line| line.keys.start / LANES).min().unwrap_or(0);
        let end = seen.map(|line| line.keys.end.div_ceil(LANES)).max().unwrap_or(0);
        let blocks = first..end.max(first);
        let mut scores = vec![[0.0; LANES]; R * blocks.len()];
        for (i, block) in blocks.clone().enumerate() {
            let sums = self.scores::<I, R>(isa, lines, block, blocks.end);
            for (r, line) in lines.iter().enumerate() {
                let held = &mut scores[r * blocks.len() + i];
                isa.store(isa.mul(sums[r], isa.splat(self.scale)), held);
                mask(held, block, &line.keys);
            }
        }
        let mut inverse = [0.0; R];
        for (r, inverse) in inverse.iter_mut().enumerate() {
            *inverse = exponentials(isa, &mut scores[r * blocks.len()..][..blocks.len()]);
        }
        self.outputs::<I, R>(isa, lines, &blocks, &scores, out);
        for (row, inverse) in out.chunks_exact_mut(self.size.padded()).zip(inverse) {
            for part in row.as_chunks_mut().0 {
                isa.store(isa.mul(isa.load(part), isa.splat(inverse)), part);
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
    fn values_of(&self, block: usize) -> &[T] {
        let run = self.table[block] as usize * self.size.heads + self.head;
        &self.values[run * self.size.value_run()..][..self.size.value_run()]
    }

    /// The sixteen scores of a block, for each line: one chain over the width.
    #[inline(always)]
    fn scores<I: Isa, const R: usize>(&self, isa: I, lines: &[Line], block: usize, end: usize) -> [I::V; R] {
        let keys = self.keys_of(block);
        let later = self.keys_of((block + AHEAD).min(end - 1));
        let width = keys.len();
        let q: [&[f32]; R] = std::array::from_fn(|r| &self.q[lines[r].at..][..width]);
        let mut sums = [isa.splat(0.0); R];
        for (i, (keys, later)) in keys.iter().zip(later).enumerate() {
            if R <= FEW {
                isa.prefetch(later);
            }
            let keys = T::load(isa, keys);
            for (sum, q) in sums.iter_mut().zip(&q) {
                *sum = isa.fma(isa.splat(q[i]), keys, *sum);
            }
        }
        sums
    }

    /// Adds every block's values, weighed, to the outputs: one chain over the keys that a line sees.
    #[inline(always)]
    fn outputs<I: Isa, const R: usize>(
        &self,
        isa: I,
        lines: &[Line],
        blocks: &Range<usize>,
        scores: &[[f32; LANES]],
        out: &mut [f32],
    ) {
        let width = self.size.padded();
        for (i, block) in blocks.clone().enumerate() {
            let values = self.values_of(block);
            if R <= FEW {
                let later = self.values_of((block + AHEAD).min(blocks.end - 1));
                for line in later.chunks(64 / size_of::<T>()) {
                    isa.prefetch(&line[0]);
                }
            }
            let weights: [&[f32; LANES]; R] = std::array::from_fn(|r| &scores[r * blocks.len() + i]);
            let seen = |line: &Line| part_of(block, &line.keys);
            if lines.iter().all(|line| seen(line) == (0..LANES)) {
                weigh::<I, T, R>(isa, weights, 0..LANES, values, out);
                continue;
            }
            for (r, line) in lines.iter().enumerate() {
                weigh::<I, T, 1>(isa, [weights[r]], seen(line), values, &mut out[r * width..][..width]);
            }
        }
    }
}

/// Adds the values of the tokens `seen` of a block, weighed, to `R` outputs.
#[inline(always)]
fn weigh<I: Isa, T: Lanes, const R: usize>(
    isa: I,
    weights: [&[f32; LANES]; R],
    seen: Range<usize>,
    values: &[T],
    out: &mut [f32],
) {
    let width = out.len() / R;
    for at in (0..width).step_by(LANES) {
        let mut sums = [isa.splat(0.0); R];
        for (sum, row) in sums.iter_mut().zip(out.chunks_exact(width)) {
            *sum = isa.load_part(&row[at..][..LANES], 0.0);
        }
        for token in seen.clone() {
            let Some(value) = values[token * width + at..].first_chunk() else { return };
            let value = T::load(isa, value);
            for (sum, weights) in sums.iter_mut().zip(&weights) {
                *sum = isa.fma(isa.splat(weights[token]), value, *sum);
            }
        }
        for (&sum, row) in sums.iter().zip(out.chunks_exact_mut(width)) {
            isa.store_part(sum, &mut row[at..][..LANES]);
        }
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

/// Turns scores into exponentials, under their maximum; returns 1 / sum, or 0 where there is no score.
#[inline(always)]
fn exponentials<I: Isa>(isa: I, scores: &mut [[f32; LANES]]) -> f32 {
    let mut most = isa.splat(f32::NEG_INFINITY);
    for block in scores.iter() {
        most = isa.max(most, isa.load(block));
    }
    let most = isa.greatest(most);
    if most == f32::NEG_INFINITY {
        return 0.0;
    }
    let (most, mut sum) = (isa.splat(most), isa.splat(0.0));
    for block in scores.iter_mut() {
        let e = maths::exp(isa, isa.sub(isa.load(block), most));
        sum = isa.add(sum, e);
        isa.store(e, block);
    }
    1.0 / isa.sum(sum)
}
