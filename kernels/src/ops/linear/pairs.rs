//! The `bf16` form: weights and activations rounded to `bf16`, products taken in pairs, sums in `f32`.
//!
//! A pair adds its second product, then its first, each rounded to `f32`: what `vdpbf16ps` does, and what tiers
//! without it do in two steps. They differ where numbers are below 2^-126: the instruction takes and gives zero.

use std::ops::Range;

use half::bf16;

use super::rows::{RowSource, Rows};
use super::tile::{AHEAD, Form, Product, RowTile, each_tile};
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES};
use crate::pool::Disjoint;
use crate::scratch::{Scratch, with_rows};

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
                // One row reads as fast as memory gives, many wait for their sums; between them, asking ahead hides the wait.
                if R > 1 && R <= 4 {
                    isa.prefetch_ahead(&panel[k], AHEAD);
                }
                *sums = isa.fma_pairs(x, &panel[k], *sums);
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

/// Tiles of a task from which on its panels are unpacked to `f32` first, where pairs are taken in two steps.
const UNPACKED: usize = 6;

// --- impl Product ---

impl Product<'_, Pairs<'_>> {
    /// [`Product::run`]; the same bits, whether panels are unpacked or not.
    pub(super) fn run_pairs(&self, cpu: Cpu<'_>, y: &mut [f32]) {
        if cpu.launch(PairWords) == 1 || self.tiles.len() < UNPACKED {
            return self.run(cpu, y);
        }
        self.each_task(cpu, y, |panels, tiles, y| {
            with_rows(|panel| cpu.launch(UnpackedTask { product: self, panels, tiles, y, panel }));
        });
    }
}

/// One task: some tiles of rows times some panels, each of which is widened once for all tiles.
struct UnpackedTask<'a> {
    product: &'a Product<'a, Pairs<'a>>,
    panels: Range<usize>,
    tiles: &'a [RowTile],
    y: &'a Disjoint<'a, f32>,
    /// Room for a panel.
    panel: &'a mut Vec<f32>,
}

impl Kernel for UnpackedTask<'_> {
    const DOTS: bool = true;
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let form = &self.product.form;
        let size = form.inputs.div_ceil(2) * 2 * LANES;
        self.panel.resize(size, 0.0);
        for index in self.panels.clone() {
            let pairs = form.panels[index * size..][..size].as_chunks::<2>().0.as_chunks::<LANES>().0;
            // The second of a pair is added first.
            for (pairs, wide) in pairs.iter().zip(self.panel.as_chunks_mut::<LANES>().0.as_chunks_mut::<2>().0) {
                let [second, first] = isa.widen_pairs(pairs);
                isa.store(second, &mut wide[0]);
                isa.store(first, &mut wide[1]);
            }
            let panel = self.panel.as_chunks::<LANES>().0.as_chunks::<2>().0;
            for tile in self.tiles {
                let (product, at, y) = (self.product, (tile.first, index), self.y);
                if I::ROW_TILES[0] >= 6 {
                    match tile.rows {
                        6 => product.store(isa, at, &form.sums_of::<I, 6>(isa, tile.first, panel), y),
                        4 => product.store(isa, at, &form.sums_of::<I, 4>(isa, tile.first, panel), y),
                        2 => product.store(isa, at, &form.sums_of::<I, 2>(isa, tile.first, panel), y),
                        _ => product.store(isa, at, &form.sums_of::<I, 1>(isa, tile.first, panel), y),
                    }
                } else {
                    match tile.rows {
                        2 => product.store(isa, at, &form.sums_of::<I, 2>(isa, tile.first, panel), y),
                        _ => product.store(isa, at, &form.sums_of::<I, 1>(isa, tile.first, panel), y),
                    }
                }
            }
        }
    }
}

// --- impl Pairs ---

impl Pairs<'_> {
    /// The sums of `R` rows with an unpacked panel, `[K/2][second, first][16]`.
    #[inline(always)]
    fn sums_of<I: Isa, const R: usize>(&self, isa: I, first: usize, panel: &[[[f32; LANES]; 2]]) -> [[I::V; 1]; R] {
        let words = I::PAIR_WORDS * R;
        let rows = &self.rows.words[first * panel.len() * I::PAIR_WORDS..][..panel.len() * words];
        let mut sums = [[isa.splat(0.0)]; R];
        for (x, weights) in rows.chunks_exact(words).zip(panel) {
            for (second, weights) in [1, 0].into_iter().zip(weights) {
                let weights = isa.load(weights);
                for (r, sum) in sums.iter_mut().enumerate() {
                    sum[0] = isa.fma(isa.splat(f32::from_bits(x[2 * r + second])), weights, sum[0]);
                }
            }
        }
        sums
    }
}
