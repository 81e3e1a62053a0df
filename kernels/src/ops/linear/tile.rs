//! The inner kernel of linear layers: a few rows times a few panels, all sums in registers.

use std::borrow::Cow;
use std::ops::Range;

use super::Activation;
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, Lanes};
use crate::ops::activation::{GeluErf, GeluTanh, LaneFn, Relu, Silu};
use crate::pool::Disjoint;

/// Heights a tile comes in, tallest first.
const HEIGHTS: [usize; 9] = [12, 10, 8, 6, 5, 4, 3, 2, 1];

/// Splits rows in tiles `(first row, rows)` that the tier's registers hold, tallest first.
pub(super) fn row_tiles(cpu: Cpu<'_>, rows: usize) -> Vec<(usize, usize)> {
    let most = cpu.launch(TileRows);
    let (mut first, mut tiles) = (0, Vec::with_capacity(rows / most + 4));
    while first < rows {
        let fits = |height: &usize| *height <= most && *height <= rows - first;
        let height = HEIGHTS.into_iter().find(fits).unwrap_or(1);
        tiles.push((first, height));
        first += height;
    }
    tiles
}

/// Lays the rows of each tile out as `[K][rows]`, at `first row * K`: the kernel reads them in one run.
pub(super) fn pack_rows<'a>(cpu: Cpu<'_>, x: &'a [f32], inputs: usize, tiles: &[(usize, usize)]) -> Cow<'a, [f32]> {
    if tiles.iter().all(|tile| tile.1 == 1) {
        return Cow::Borrowed(x);
    }
    let mut packed = vec![0.0; x.len()];
    let out = Disjoint::new(&mut packed);
    let grain = (4_096 / inputs.max(1)).max(1);
    cpu.pool.each(tiles.len().div_ceil(grain), |task| {
        for &(first, height) in &tiles[task * grain..tiles.len().min((task + 1) * grain)] {
            // SAFETY: tiles are disjoint ranges of rows.
            let out = unsafe { out.part(first * inputs, height * inputs) };
            for (r, row) in x[first * inputs..][..height * inputs].chunks_exact(inputs.max(1)).enumerate() {
                for (column, &v) in out.chunks_exact_mut(height).zip(row) {
                    column[r] = v;
                }
            }
        }
    });
    Cow::Owned(packed)
}

struct TileRows;

impl Kernel for TileRows {
    type Out = usize;

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> usize {
        I::TILE_ROWS
    }
}

/// What happens to a sum before it is stored.
pub(super) struct Finish<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Activation,
    pub(super) residual: Option<&'a [f32]>,
}

/// One task: some tiles of rows times some panels.
pub(super) struct Tiles<'a, W> {
    pub(super) weight: &'a [W],
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) panels: Range<usize>,
    pub(super) tiles: &'a [(usize, usize)],
    pub(super) packed: &'a [f32],
    pub(super) finish: &'a Finish<'a>,
    pub(super) y: &'a Disjoint<'a, f32>,
}

impl<W: Lanes> Kernel for Tiles<'_, W> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let tallest = self.tiles.first().map_or(1, |tile| tile.1);
        let step = if !I::WIDE {
            1
        } else if tallest <= 6 {
            4
        } else {
            2
        };
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let step = if panel + step <= self.panels.end { step } else { 1 };
            for &tile in self.tiles {
                self.tile(isa, tile, panel, step);
            }
            panel += step;
        }
    }
}

impl<W: Lanes> Tiles<'_, W> {
    #[inline(always)]
    fn tile<I: Isa>(&self, isa: I, tile: (usize, usize), panel: usize, step: usize) {
        match (tile.1, step) {
            (12, 2) => self.sized::<I, 12, 2>(isa, tile.0, panel),
            (10, 2) => self.sized::<I, 10, 2>(isa, tile.0, panel),
            (8, 2) => self.sized::<I, 8, 2>(isa, tile.0, panel),
            (6, 2) => self.sized::<I, 6, 2>(isa, tile.0, panel),
            (5, 2) => self.sized::<I, 5, 2>(isa, tile.0, panel),
            (4, 2) => self.sized::<I, 4, 2>(isa, tile.0, panel),
            (3, 2) => self.sized::<I, 3, 2>(isa, tile.0, panel),
            (2, 2) => self.sized::<I, 2, 2>(isa, tile.0, panel),
            (1, 2) => self.sized::<I, 1, 2>(isa, tile.0, panel),
            (6, 4) => self.sized::<I, 6, 4>(isa, tile.0, panel),
            (5, 4) => self.sized::<I, 5, 4>(isa, tile.0, panel),
            (4, 4) => self.sized::<I, 4, 4>(isa, tile.0, panel),
            (3, 4) => self.sized::<I, 3, 4>(isa, tile.0, panel),
            (2, 4) => self.sized::<I, 2, 4>(isa, tile.0, panel),
            (1, 4) => self.sized::<I, 1, 4>(isa, tile.0, panel),
            (12, _) => self.sized::<I, 12, 1>(isa, tile.0, panel),
            (10, _) => self.sized::<I, 10, 1>(isa, tile.0, panel),
            (8, _) => self.sized::<I, 8, 1>(isa, tile.0, panel),
            (6, _) => self.sized::<I, 6, 1>(isa, tile.0, panel),
            (5, _) => self.sized::<I, 5, 1>(isa, tile.0, panel),
            (4, _) => self.sized::<I, 4, 1>(isa, tile.0, panel),
            (3, _) => self.sized::<I, 3, 1>(isa, tile.0, panel),
            (2, _) => self.sized::<I, 2, 1>(isa, tile.0, panel),
            _ => self.sized::<I, 1, 1>(isa, tile.0, panel),
        }
    }

    /// `R` rows times `P` panels.
    #[inline(always)]
    fn sized<I: Isa, const R: usize, const P: usize>(&self, isa: I, first: usize, panel: usize) {
        let size = self.inputs * LANES;
        let panels: [&[[W; LANES]]; P] =
            std::array::from_fn(|p| self.weight[(panel + p) * size..][..size].as_chunks().0);
        let x = self.packed[first * self.inputs..][..R * self.inputs].as_chunks::<R>().0;
        let sums = sums::<I, W, R, P>(isa, x, panels);
        for (r, sums) in sums.iter().enumerate() {
            for (p, &sum) in sums.iter().enumerate() {
                self.store(isa, first + r, (panel + p) * LANES, sum);
            }
        }
    }

    #[inline(always)]
    fn store<I: Isa>(&self, isa: I, row: usize, column: usize, sum: I::V) {
        let count = LANES.min(self.outputs - column);
        let at = row * self.outputs + column;
        let mut v = sum;
        if let Some(bias) = self.finish.bias {
            v = isa.add(v, isa.load_part(&bias[column..], 0.0));
        }
        v = match self.finish.activation {
            Activation::None => v,
            Activation::GeluErf => GeluErf.lanes(isa, v),
            Activation::GeluTanh => GeluTanh.lanes(isa, v),
            Activation::Relu => Relu.lanes(isa, v),
            Activation::Silu => Silu.lanes(isa, v),
        };
        if let Some(residual) = self.finish.residual {
            v = isa.add(v, isa.load_part(&residual[at..][..count], 0.0));
        }
        // SAFETY: tasks own disjoint (rows, panels) blocks of the output, and a task stores one run at a time.
        isa.store_part(v, unsafe { self.y.part(at, count) });
    }
}

/// One chain of multiply-adds per (row, output), over K from the first to the last.
#[inline(always)]
fn sums<I: Isa, W: Lanes, const R: usize, const P: usize>(
    isa: I,
    x: &[[f32; R]],
    panels: [&[[W; LANES]]; P],
) -> [[I::V; P]; R] {
    let mut sums = [[isa.splat(0.0); P]; R];
    let panels = panels.map(|panel| &panel[..x.len()]);
    for (k, x) in x.iter().enumerate() {
        let mut weights = [isa.splat(0.0); P];
        for (weight, panel) in weights.iter_mut().zip(&panels) {
            *weight = W::load(isa, &panel[k]);
        }
        for (sums, &x) in sums.iter_mut().zip(x) {
            let x = isa.splat(x);
            for (sum, &weight) in sums.iter_mut().zip(&weights) {
                *sum = isa.fma(x, weight, *sum);
            }
        }
    }
    sums
}
