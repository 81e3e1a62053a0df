//! What linear layers of every form share: rows cut in tiles, the output cut in tasks, and what is fused behind a sum.

use std::ops::Range;

use super::Activation;
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES};
use crate::pool::Disjoint;
use crate::scratch::with_rows;

/// Multiply-adds that one task should have at least: some 2 us.
const TASK: usize = 64 << 10;
/// Numbers that one task packs at least: some 5 us.
const PACK: usize = 8 << 10;
/// Bytes of packed rows that stay in the second-level cache while panels pass by.
const BLOCK: usize = 256 << 10;

/// How far ahead weights are asked for, in bytes.
pub(super) const AHEAD: usize = 2_048;

/// Weights of one form beside rows packed for them.
pub(super) trait Form: Sync {
    /// As [`Kernel::DOTS`].
    const DOTS: bool;
    /// Whether several panels at once are worth their code: they are where one sum is too short of work.
    const BESIDE: bool;

    /// Returns the sums of `R` rows from `first` with `P` panels from `panel`. Each sum is a chain over K, from the
    /// first to the last, that neither `R` nor `P` changes. Implementations are `#[inline(always)]`.
    fn sums<I: Isa, const R: usize, const P: usize>(&self, isa: I, first: usize, panel: usize) -> [[I::V; P]; R];
}

/// Some rows, from the first: a tile is computed, and packed, as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowTile {
    pub(super) first: usize,
    pub(super) rows: usize,
}

/// What happens to a sum before it is stored.
pub(super) struct Finish<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) activation: Activation,
    pub(super) residual: Option<&'a [f32]>,
}

/// A whole product: a form, its tiles, and where the results go.
pub(super) struct Product<'a, F> {
    pub(super) form: F,
    pub(super) tiles: &'a [RowTile],
    /// The length of a row, in weights.
    pub(super) inputs: usize,
    /// The size of a packed row.
    pub(super) row_bytes: usize,
    pub(super) outputs: usize,
    pub(super) finish: Finish<'a>,
}

/// Splits rows in tiles that the registers hold, tallest first, for a form with these [`Form::DOTS`].
pub(super) fn row_tiles<const DOTS: bool>(cpu: Cpu<'_>, rows: usize) -> Vec<RowTile> {
    let heights = cpu.launch(Heights::<DOTS>);
    let (mut first, mut tiles) = (0, Vec::new());
    for &height in heights {
        while rows - first >= height {
            tiles.push(RowTile { first, rows: height });
            first += height;
        }
    }
    tiles
}

/// Calls `pack` for every tile, on the pool, with a buffer to make rows in.
pub(super) fn each_tile(cpu: Cpu<'_>, tiles: &[RowTile], inputs: usize, pack: impl Fn(RowTile, &mut Vec<f32>) + Sync) {
    let tallest = tiles.first().map_or(1, |tile| tile.rows);
    let grain = (PACK / (inputs * tallest).max(1)).max(1);
    cpu.pool.each(tiles.len().div_ceil(grain), |task| {
        with_rows(|rows| {
            for &tile in &tiles[task * grain..tiles.len().min((task + 1) * grain)] {
                pack(tile, rows);
            }
        });
    });
}

/// Panels of one task: about `wanted`, or fewer if that leaves threads less to wait for each other.
fn group((panels, blocks): (usize, usize), wanted: usize, step: usize, threads: usize) -> usize {
    let wanted = wanted.next_multiple_of(step);
    // What the busiest thread does.
    let most = |group: usize| (panels.div_ceil(group) * blocks).div_ceil(threads) * group;
    let sizes = (wanted.div_ceil(2)..=wanted).rev().filter(|group| group.is_multiple_of(step));
    sizes.min_by_key(|&group| most(group)).unwrap_or(wanted)
}

struct Heights<const DOTS: bool>;

impl<const DOTS: bool> Kernel for Heights<DOTS> {
    const DOTS: bool = DOTS;
    type Out = &'static [usize];

    #[inline(always)]
    fn run<I: Isa>(self, _isa: I) -> &'static [usize] {
        I::ROW_TILES
    }
}

// --- impl Product ---

impl<F: Form> Product<'_, F> {
    /// Computes the product.
    pub(super) fn run(&self, cpu: Cpu<'_>, y: &mut [f32]) {
        self.each_task(cpu, y, |panels, tiles, y| cpu.launch(Task { product: self, panels, tiles, y }));
    }

    /// Splits the output in groups of panels times blocks of rows, one task each, and finishes what `compute` stores.
    pub(super) fn each_task(
        &self,
        cpu: Cpu<'_>,
        y: &mut [f32],
        compute: impl Fn(Range<usize>, &[RowTile], &Disjoint<'_, f32>) + Sync,
    ) {
        let panels = self.outputs.div_ceil(LANES);
        let tallest = self.tiles.first().map_or(1, |tile| tile.rows);
        let per_block = (BLOCK / (tallest * self.row_bytes).max(1)).clamp(1, self.tiles.len().max(1));
        let blocks = self.tiles.len().div_ceil(per_block);
        let work = per_block * tallest * self.inputs.max(1) * LANES;
        let step = if F::BESIDE { 4 } else { 1 };
        let group = group((panels, blocks), TASK.div_ceil(work), step, cpu.pool.threads());
        let y = Disjoint::new(y);
        // Tasks that follow each other share their panels: weights come from memory once.
        cpu.pool.each(panels.div_ceil(group) * blocks, |task| {
            let (start, first) = ((task / blocks) * group, (task % blocks) * per_block);
            let (panels, y) = (start..panels.min(start + group), &y);
            let tiles = &self.tiles[first..self.tiles.len().min(first + per_block)];
            compute(panels.clone(), tiles, y);
            if !self.finish.is_nothing() {
                let rows = tiles[0].first..tiles.iter().map(|tile| tile.first + tile.rows).max().unwrap_or(0);
                let columns = panels.start * LANES..self.outputs.min(panels.end * LANES);
                cpu.launch(FinishBlock { finish: &self.finish, rows, columns, outputs: self.outputs, y });
            }
        });
    }

    /// Stores the sums of `R` rows from `first` with `P` panels from `panel`, which are the caller's alone.
    #[inline(always)]
    pub(super) fn store<I: Isa, const R: usize, const P: usize>(
        &self,
        isa: I,
        (first, panel): (usize, usize),
        sums: &[[I::V; P]; R],
        y: &Disjoint<'_, f32>,
    ) {
        for (r, sums) in sums.iter().enumerate() {
            for (p, &sum) in sums.iter().enumerate() {
                let column = (panel + p) * LANES;
                let at = (first + r) * self.outputs + column;
                // SAFETY: tasks own disjoint blocks of the output, and a task stores one run at a time.
                isa.store_part(sum, unsafe { y.part(at, LANES.min(self.outputs - column)) });
            }
        }
    }
}

/// One task: some tiles of rows times some panels.
struct Task<'a, F> {
    product: &'a Product<'a, F>,
    panels: Range<usize>,
    tiles: &'a [RowTile],
    y: &'a Disjoint<'a, f32>,
}

impl<F: Form> Kernel for Task<'_, F> {
    const DOTS: bool = F::DOTS;
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let tallest = self.tiles.first().map_or(1, |tile| tile.rows);
        let step = match tallest {
            4 if F::BESIDE && I::ROW_TILES[0] >= 16 => 2,
            1 if F::BESIDE && I::ROW_TILES[0] >= 16 => 4,
            1 if F::BESIDE && I::ROW_TILES[0] >= 6 => 2,
            _ => 1,
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

impl<F: Form> Task<'_, F> {
    /// Picks the code for a tile's height; heights that the tier does not use cost it no code.
    #[inline(always)]
    fn tile<I: Isa>(&self, isa: I, tile: RowTile, panel: usize, step: usize) {
        if I::ROW_TILES[0] >= 16 {
            match (tile.rows, step) {
                (16, _) => self.panels::<I, 16, 1>(isa, tile, panel, step),
                (8, _) => self.panels::<I, 8, 1>(isa, tile, panel, step),
                (4, 2) if F::BESIDE => self.panels::<I, 4, 2>(isa, tile, panel, step),
                (4, _) => self.panels::<I, 4, 1>(isa, tile, panel, step),
                (_, 4) if F::BESIDE => self.panels::<I, 1, 4>(isa, tile, panel, step),
                _ => self.panels::<I, 1, 1>(isa, tile, panel, step),
            }
        } else if I::ROW_TILES[0] >= 6 {
            match (tile.rows, step) {
                (6, _) => self.panels::<I, 6, 1>(isa, tile, panel, step),
                (4, _) => self.panels::<I, 4, 1>(isa, tile, panel, step),
                (2, _) => self.panels::<I, 2, 1>(isa, tile, panel, step),
                (_, 2) if F::BESIDE => self.panels::<I, 1, 2>(isa, tile, panel, step),
                _ => self.panels::<I, 1, 1>(isa, tile, panel, step),
            }
        } else {
            match tile.rows {
                2 => self.panels::<I, 2, 1>(isa, tile, panel, step),
                _ => self.panels::<I, 1, 1>(isa, tile, panel, step),
            }
        }
    }

    /// `R` rows times `step` panels, `P` at once.
    #[inline(always)]
    fn panels<I: Isa, const R: usize, const P: usize>(&self, isa: I, tile: RowTile, panel: usize, step: usize) {
        for panel in (panel..panel + step).step_by(P) {
            let sums = self.product.form.sums::<I, R, P>(isa, tile.first, panel);
            self.product.store(isa, (tile.first, panel), &sums, self.y);
        }
    }
}

/// What follows the sums of a task, which it just stored.
struct FinishBlock<'a> {
    finish: &'a Finish<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    outputs: usize,
    y: &'a Disjoint<'a, f32>,
}

impl Kernel for FinishBlock<'_> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for row in self.rows {
            for column in self.columns.clone().step_by(LANES) {
                let at = row * self.outputs + column;
                // SAFETY: the block belongs to one task, which takes one run of it at a time.
                let y = unsafe { self.y.part(at, LANES.min(self.outputs - column)) };
                let residual = self.finish.residual.map(|residual| &residual[at..][..y.len()]);
                self.finish.apply(isa, column, residual, y);
            }
        }
    }
}

// --- impl Finish ---

impl Finish<'_> {
    fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.activation == Activation::None && self.residual.is_none()
    }

    #[inline(always)]
    fn apply<I: Isa>(&self, isa: I, column: usize, residual: Option<&[f32]>, y: &mut [f32]) {
        let mut v = isa.load_part(y, 0.0);
        if let Some(bias) = self.bias {
            v = isa.add(v, isa.load_part(&bias[column..], 0.0));
        }
        v = self.activation.lanes(isa, v);
        if let Some(residual) = residual {
            v = isa.add(v, isa.load_part(residual, 0.0));
        }
        isa.store_part(v, y);
    }
}
