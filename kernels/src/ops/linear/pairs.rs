//! The `bf16` form: weights and activations rounded to `bf16`, products taken in pairs, sums in `f32`.
//!
//! A pair adds its second product, then its first, each rounded to `f32`: what `vdpbf16ps` does, and what tiers
//! without it do in two steps. They differ where numbers are below 2^-126: the instruction takes and gives zero.

use half::bf16;

use super::rows::{RowSource, Rows};
use super::tile::{Form, RowTile, each_tile};
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES};
use crate::pool::Disjoint;
use crate::scratch::Scratch;

/// Panels `[K/2][16][2]` beside [`PackedPairs`].
pub(super) struct Pairs<'a> {
    pub(super) panels: &'a [bf16],
    pub(super) rows: &'a PackedPairs,
    pub(super) inputs: usize,
}

/// Rows rounded to `bf16`: per tile `[K/2][rows]` pairs, each of as many words as the tier asks for.
pub(super) struct PackedPairs {
    words: Scratch<u32>,
    pub(super) row_bytes: usize,
}

/// Rounds and lays out the rows of all tiles.
pub(super) fn pack_rows<S: RowSource>(cpu: Cpu<'_>, rows: &Rows<'_, S>, tiles: &[RowTile]) -> PackedPairs {
    let (inputs, count) = (rows.width, tiles.iter().map(|tile| tile.rows).sum::<usize>());
    let row_words = inputs.div_ceil(2) * cpu.launch(PairWords);
    let mut words = Scratch::<u32>::take(count * row_words);
    let out = Disjoint::new(&mut words);
    each_tile(cpu, tiles, inputs, |tile, scratch| {
        // SAFETY: tiles are disjoint ranges of rows.
        let out = unsafe { out.part(tile.first * row_words, tile.rows * row_words) };
        let x = rows.get(tile.first, tile.rows, scratch);
        cpu.launch(PackTile { x, rows: tile.rows, inputs, out });
    });
    PackedPairs { words, row_bytes: row_words * size_of::<u32>() }
}

struct PairWords;

impl Kernel for PairWords {
    const DOTS: bool = true;
    type Out = usize;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> usize {
        I::PAIR_WORDS
    }
}

struct PackTile<'a> {
    x: &'a [f32],
    rows: usize,
    inputs: usize,
    out: &'a mut [u32],
}

impl Kernel for PackTile<'_> {
    const DOTS: bool = true;
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        // Sixteen columns at a time: what is written is still at hand when the next row's turn comes.
        for (k, out) in self.out.chunks_mut(LANES / 2 * self.rows * I::PAIR_WORDS).enumerate() {
            for (r, row) in self.x.chunks_exact(self.inputs.max(1)).enumerate() {
                let (x, mut padded) = (&row[k * LANES..], [0.0; LANES]);
                let whole = x.first_chunk().unwrap_or_else(|| {
                    padded[..x.len()].copy_from_slice(x);
                    &padded
                });
                let words = isa.round_pairs(whole);
                let places = out.chunks_exact_mut(I::PAIR_WORDS).skip(r).step_by(self.rows);
                for (place, pair) in places.zip(words.chunks_exact(I::PAIR_WORDS)) {
                    place.copy_from_slice(pair);
                }
            }
        }
    }
}

impl Form for Pairs<'_> {
    const DOTS: bool = true;
    const BESIDE: bool = true;

    #[inline(always)]
    fn sums<I: Isa, const R: usize, const P: usize>(&self, isa: I, first: usize, panel: usize) -> [[I::V; P]; R] {
        let steps = self.inputs.div_ceil(2);
        let (size, words) = (steps * 2 * LANES, I::PAIR_WORDS);
        let rows = &self.rows.words[first * steps * words..][..R * steps * words];
        let mut panels: [&[[[bf16; 2]; LANES]]; P] = [&[]; P];
        for (p, panel_of) in panels.iter_mut().enumerate() {
            let pairs = self.panels[(panel + p) * size..][..size].as_chunks::<2>().0;
            *panel_of = &pairs.as_chunks::<LANES>().0[..steps];
        }
        let mut columns = [[isa.splat(0.0); R]; P];
        for (k, x) in rows.chunks_exact(R * words).enumerate() {
            for (sums, panel) in columns.iter_mut().zip(&panels) {
                *sums = isa.fma_pairs(x, isa.load_pairs(&panel[k]), *sums);
            }
        }
        let mut sums = [[isa.splat(0.0); P]; R];
        for (p, column) in columns.iter().enumerate() {
            for (sums, &sum) in sums.iter_mut().zip(column) {
                sums[p] = sum;
            }
        }
        sums
    }
}
