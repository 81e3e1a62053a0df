//! The exact form: `f32` sums of `f32` activations with weights of `f32`, or of `bf16` that are widened as they are read.

use std::ops::Deref;

use super::rows::{RowSource, Rows};
use super::tile::{Form, RowTile, each_tile};
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, Lanes, interleave};
use crate::pool::Disjoint;
use crate::scratch::Scratch;

/// Panels `[K][16]` beside rows that [`pack_rows`] packed.
pub(super) struct Floats<'a, W> {
    pub(super) panels: &'a [W],
    pub(super) rows: &'a [f32],
    pub(super) inputs: usize,
}

/// Rows as a tensor has them, or laid out for tiles.
pub(super) enum PackedRows<'a> {
    AsTheyAre(&'a [f32]),
    Own(Scratch<f32>),
}

impl Deref for PackedRows<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::AsTheyAre(rows) => rows,
            Self::Own(rows) => rows,
        }
    }
}

/// Lays the rows of each tile out as `[K][rows]`, at `first row * K`: the kernel reads them in one run.
pub(super) fn pack_rows<'a, S: RowSource>(cpu: Cpu<'_>, rows: &Rows<'a, S>, tiles: &[RowTile]) -> PackedRows<'a> {
    let (inputs, count) = (rows.width, tiles.iter().map(|tile| tile.rows).sum::<usize>());
    if let (Some(x), true) = (rows.whole(count), tiles.iter().all(|tile| tile.rows == 1)) {
        return PackedRows::AsTheyAre(x);
    }
    let mut packed = Scratch::<f32>::take(count * inputs);
    let out = Disjoint::new(&mut packed);
    each_tile(cpu, tiles, inputs, |tile, scratch| {
        // SAFETY: tiles are disjoint ranges of rows.
        let out = unsafe { out.part(tile.first * inputs, tile.rows * inputs) };
        let x = rows.get(tile.first, tile.rows, scratch);
        cpu.launch(PackTile { x, rows: tile.rows, inputs, out });
    });
    PackedRows::Own(packed)
}

struct PackTile<'a> {
    x: &'a [f32],
    rows: usize,
    inputs: usize,
    out: &'a mut [f32],
}

impl Kernel for PackTile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let mut rows = [&self.x[..0]; LANES];
        for (row, x) in rows.iter_mut().zip(self.x.chunks_exact(self.inputs.max(1))) {
            *row = x;
        }
        interleave(isa, &rows[..self.rows], self.out);
    }
}

impl<W: Lanes> Form for Floats<'_, W> {
    const DOTS: bool = false;
    const BESIDE: bool = true;

    #[inline(always)]
    fn sums<I: Isa, const R: usize, const P: usize>(&self, isa: I, first: usize, panel: usize) -> [[I::V; P]; R] {
        let size = self.inputs * LANES;
        let rows = self.rows[first * self.inputs..][..R * self.inputs].as_chunks::<R>().0;
        let mut panels: [&[[W; LANES]]; P] = [&[]; P];
        for (p, panel_of) in panels.iter_mut().enumerate() {
            *panel_of = &self.panels[(panel + p) * size..][..size].as_chunks().0[..rows.len()];
        }
        let mut sums = [[isa.splat(0.0); P]; R];
        // Two steps per turn: with one, the loop's own instructions cost some of the time.
        let (turns, last) = rows.as_chunks::<2>();
        for (turn, steps) in turns.iter().enumerate() {
            for (step, x) in steps.iter().enumerate() {
                add_step(isa, x, &panels, 2 * turn + step, &mut sums);
            }
        }
        for x in last {
            add_step(isa, x, &panels, rows.len() - 1, &mut sums);
        }
        sums
    }
}

/// Adds the products of step `k` of the chains over K.
#[inline(always)]
fn add_step<I: Isa, W: Lanes, const R: usize, const P: usize>(
    isa: I,
    x: &[f32; R],
    panels: &[&[[W; LANES]]; P],
    k: usize,
    sums: &mut [[I::V; P]; R],
) {
    let mut weights = [isa.splat(0.0); P];
    for (weight, panel) in weights.iter_mut().zip(panels) {
        *weight = W::load(isa, &panel[k]);
    }
    for (sums, &x) in sums.iter_mut().zip(x) {
        let x = isa.splat(x);
        for (sum, &weight) in sums.iter_mut().zip(&weights) {
            *sum = isa.fma(x, weight, *sum);
        }
    }
}
