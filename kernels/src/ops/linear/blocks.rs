//! The quantised forms: weights in blocks of 32 along K with a scale each, activations rounded to eight bits per block.
//!
//! A row's block of 32 activations is divided by its largest magnitude over 127 and rounded, ties to even. Dot products
//! of a block are exact in integers, whatever the tier; blocks are added in `f32`, first to last.
//!
//! Panels hold sixteen outputs: first the scales of all blocks, then their weights, so that both are read in one run.
//!
//! Where weights of bytes allow it ([`Blocks::lifted`]) the activations of some rows at once are lifted by 127: unsigned, they
//! take fewer instructions, and what that adds to a block's products is taken away from their exact sum.

use half::f16;

use super::rows::{RowSource, Rows};
use super::tile::{AHEAD, Form, RowTile, each_tile};
use crate::cx::Cpu;
use crate::isa::{Isa, Kernel, LANES, PAIR, QUAD};
use crate::pool::Disjoint;
use crate::scratch::Scratch;
use crate::{KernelError, Tensor};

/// Weights of a block.
pub(super) const BLOCK: usize = 32;
/// Blocks whose scales [`Kind::HalvesMin`] stores together.
pub(super) const SUPER: usize = 8;
/// Bytes of the scales that [`SUPER`] blocks share: two `f16` of sixteen outputs each, then two bytes per block.
pub(super) const SUPER_BYTES: usize = 4 * LANES + SUPER * 2 * LANES;
/// What is added to activations that are lifted.
const LIFT: i8 = 127;
/// Rows that are worth lifting: fewer wait for the weights, and need not read [`Blocks::lifted`] too.
const LIFTED_ROWS: usize = 4;

/// How the weights of a block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Signed bytes times an `f16` scale.
    Bytes,
    /// Half bytes less 8, times an `f16` scale.
    Halves,
    /// Half bytes times an `f16` scale, plus an `f16`.
    HalvesPlus,
    /// Half bytes times a scale, less a minimum; both are a byte times an `f16` that eight blocks share.
    HalvesMin,
}

/// Packed panels.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pub(super) kind: Kind,
    /// `[panels][panel_bytes]`.
    pub(super) panels: Tensor,
    /// Of [`Kind::Bytes`] of which no two neighbours, from an even place, add up to more than [`PAIR`]: what lifted
    /// activations are to be less in each block, `[panels][blocks][16]`.
    lifted: Option<Tensor>,
}

/// Rows in blocks of eight-bit numbers: per tile `[blocks][rows]`.
pub(super) struct PackedBlocks {
    quants: Scratch<[i8; BLOCK]>,
    /// Per tile `[blocks][2][rows]`: scales, and totals of the quants.
    scales: Scratch<f32>,
    blocks: usize,
}

/// Panels beside rows.
pub(super) struct BlockProduct<'a> {
    pub(super) kind: Kind,
    pub(super) panels: &'a [u8],
    /// Of lifted rows: as [`Blocks::lifted`].
    pub(super) lifted: Option<&'a [[f32; LANES]]>,
    pub(super) rows: &'a PackedBlocks,
}

// --- impl Kind ---

impl Kind {
    /// Bytes of a panel's scales, for so many blocks.
    pub(super) fn scale_bytes(self, count: usize) -> usize {
        match self {
            Self::Bytes | Self::Halves => (count * 2 * LANES).next_multiple_of(QUAD),
            Self::HalvesPlus => count * 4 * LANES,
            Self::HalvesMin => count.div_ceil(SUPER) * SUPER_BYTES,
        }
    }

    /// Bytes of sixteen outputs' weights in one block.
    pub(super) fn quant_bytes(self) -> usize {
        match self {
            Self::Bytes => BLOCK * LANES,
            Self::Halves | Self::HalvesPlus | Self::HalvesMin => BLOCK * LANES / 2,
        }
    }

    pub(super) fn panel_bytes(self, count: usize) -> usize {
        self.scale_bytes(count) + count * self.quant_bytes()
    }

    /// Reads a block of an output back from panels of `count` blocks: weight = quant * scale - minimum.
    pub(super) fn block(self, panels: &[u8], count: usize, (n, block): (usize, usize)) -> ([i8; BLOCK], f32, f32) {
        let (size, lane) = (self.panel_bytes(count), n % LANES);
        let (scales, quants) = panels[n / LANES * size..][..size].split_at(self.scale_bytes(count));
        let quants = &quants[block * self.quant_bytes()..][..self.quant_bytes()];
        let half = |at: usize| f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
        let nibble = |k: usize| {
            let pair = quants[k % 16 / 4 * QUAD + lane * 4 + k % 4];
            if k < 16 { pair & 15 } else { pair >> 4 }.cast_signed()
        };
        match self {
            Self::Bytes => {
                let byte = |k: usize| quants[k / 4 * QUAD + lane * 4 + k % 4].cast_signed();
                (std::array::from_fn(byte), half((block * LANES + lane) * 2), 0.0)
            }
            Self::Halves => (std::array::from_fn(|k| nibble(k) - 8), half((block * LANES + lane) * 2), 0.0),
            Self::HalvesPlus => {
                let [step, plus] = [2 * block, 2 * block + 1].map(|row| half((row * LANES + lane) * 2));
                (std::array::from_fn(nibble), step, -plus)
            }
            Self::HalvesMin => {
                let (shared, own) = (block / SUPER * SUPER_BYTES, 4 * LANES + block % SUPER * 2 * LANES + lane);
                let [step, minimum] = [own, own + LANES].map(|at| f32::from(scales[shared + at]));
                let (step, minimum) = (step * half(shared + 2 * lane), minimum * half(shared + 2 * (LANES + lane)));
                (std::array::from_fn(nibble), step, minimum)
            }
        }
    }
}

// --- impl Blocks ---

impl Blocks {
    /// Makes panels of `outputs` rows of `count` blocks; `fill` gets each panel's scales and weights, zeroed.
    pub(super) fn filled(
        kind: Kind,
        (outputs, count): (usize, usize),
        mut fill: impl FnMut(usize, &mut [u8], &mut [u8]),
    ) -> Result<Self, KernelError> {
        let size = kind.panel_bytes(count);
        let panels = Tensor::filled([outputs.div_ceil(LANES), size], |out: &mut [u8]| {
            for (panel, out) in out.chunks_exact_mut(size.max(1)).enumerate() {
                let (scales, quants) = out.split_at_mut(kind.scale_bytes(count));
                fill(panel, scales, quants);
            }
        })?;
        let lifted = if kind == Kind::Bytes { lifted(panels.as_slice()?, (outputs, count))? } else { None };
        Ok(Self { kind, panels, lifted })
    }

    /// As [`Blocks::lifted`], if so many rows are to be lifted.
    pub(super) fn lifted_for(&self, rows: usize) -> Result<Option<&[[f32; LANES]]>, KernelError> {
        let lifted = self.lifted.as_ref().filter(|_| rows >= LIFTED_ROWS);
        Ok(lifted.map(Tensor::f32s).transpose()?.map(|lifted| lifted.as_chunks().0))
    }
}

/// Returns the weights' sums times the lift, block by block, unless two neighbours are too large together.
fn lifted(panels: &[u8], (outputs, count): (usize, usize)) -> Result<Option<Tensor>, KernelError> {
    let size = Kind::Bytes.panel_bytes(count).max(1);
    let scales = Kind::Bytes.scale_bytes(count);
    let blocks = || panels.chunks_exact(size).flat_map(|panel| panel[scales..].as_chunks::<{ BLOCK * LANES }>().0);
    let small = |pair: &[u8; 2]| pair.iter().map(|&w| i16::from(w.cast_signed())).sum::<i16>().abs() <= PAIR;
    if !blocks().all(|block| block.as_chunks().0.iter().all(small)) {
        return Ok(None);
    }
    let sums = Tensor::filled([outputs.div_ceil(LANES), count, LANES], |out: &mut [f32]| {
        for (out, block) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks()) {
            for (i, four) in block.as_chunks::<4>().0.iter().enumerate() {
                out[i % LANES] += f32::from(LIFT) * four.iter().map(|&w| f32::from(w.cast_signed())).sum::<f32>();
            }
        }
    })?;
    Ok(Some(sums))
}

// --- rows ---

/// Rounds and lays out the rows of all tiles, lifted or not.
pub(super) fn pack_rows<S: RowSource>(
    cpu: Cpu<'_>,
    rows: &Rows<'_, S>,
    tiles: &[RowTile],
    lifted: bool,
) -> PackedBlocks {
    let (inputs, count) = (rows.width, tiles.iter().map(|tile| tile.rows).sum::<usize>());
    let (blocks, lift) = (inputs.div_ceil(BLOCK), if lifted { LIFT } else { 0 });
    let (mut quants, mut scales) =
        (Scratch::<[i8; BLOCK]>::take(count * blocks), Scratch::<f32>::take(count * blocks * 2));
    let (all_quants, all_scales) = (Disjoint::new(&mut quants), Disjoint::new(&mut scales));
    each_tile(cpu, tiles, inputs, |tile, scratch| {
        let (start, len) = (tile.first * blocks, tile.rows * blocks);
        // SAFETY: tiles are disjoint ranges of rows.
        let (quants, scales) = unsafe { (all_quants.part(start, len), all_scales.part(2 * start, 2 * len)) };
        let x = rows.get(tile.first, tile.rows, scratch);
        cpu.launch(PackTile { x, rows: tile.rows, inputs, lift, quants, scales });
    });
    PackedBlocks { quants, scales, blocks }
}

struct PackTile<'a> {
    x: &'a [f32],
    rows: usize,
    inputs: usize,
    lift: i8,
    quants: &'a mut [[i8; BLOCK]],
    scales: &'a mut [f32],
}

impl Kernel for PackTile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        // In the order of what is written: its lines often lie in another core's cache.
        for b in 0..self.inputs.div_ceil(BLOCK) {
            let columns = b * BLOCK..self.inputs.min((b + 1) * BLOCK);
            for r in 0..self.rows {
                let (mut quants, scale, total) = round_block(isa, &self.x[r * self.inputs..][columns.clone()]);
                for x in &mut quants {
                    *x = x.wrapping_add(self.lift);
                }
                self.quants[b * self.rows + r] = quants;
                self.scales[b * 2 * self.rows + r] = scale;
                self.scales[(b * 2 + 1) * self.rows + r] = total;
            }
        }
    }
}

/// Rounds up to 32 numbers to eight bits; returns them, their scale, and their sum.
#[inline(always)]
fn round_block<I: Isa>(isa: I, x: &[f32]) -> ([i8; BLOCK], f32, f32) {
    let (first, second) = x.split_at(x.len().min(LANES));
    let (zero, halves) = (isa.splat(0.0), [isa.load_part(first, 0.0), isa.load_part(second, 0.0)]);
    let size = isa.max(isa.sub(zero, halves[0]), halves[0]);
    let size = isa.max(size, isa.max(isa.sub(zero, halves[1]), halves[1]));
    let most = isa.greatest(size);
    // So little that its inverse would not be finite counts as nothing, unless something is no number.
    if most < f32::MIN_POSITIVE * 128.0 {
        return ([0; BLOCK], isa.sum(isa.fma(halves[0], zero, isa.mul(halves[1], zero))), 0.0);
    }
    let per = isa.splat(127.0 / most);
    let rounded = [isa.round(isa.mul(halves[0], per)), isa.round(isa.mul(halves[1], per))];
    let total = isa.sum(isa.add(rounded[0], rounded[1]));
    let (bound, least) = (isa.splat(127.0), isa.splat(-127.0));
    let held = [isa.max(isa.min(rounded[0], bound), least), isa.max(isa.min(rounded[1], bound), least)];
    // The total is no number if something is not finite: then neither is the scale, and with it the row.
    (isa.bytes(held), most / 127.0 + total * 0.0, total)
}

// --- impl BlockProduct ---

impl PackedBlocks {
    /// Bytes of one packed row.
    pub(super) fn row_bytes(&self) -> usize {
        self.blocks * (BLOCK + 2 * size_of::<f32>())
    }
}

impl Form for BlockProduct<'_> {
    const DOTS: bool = true;
    const BESIDE: bool = false;

    #[inline(always)]
    fn sums<I: Isa, const R: usize, const P: usize>(&self, isa: I, first: usize, panel: usize) -> [[I::V; P]; R] {
        let (blocks, start) = (self.rows.blocks, first * self.rows.blocks);
        let x = self.rows.quants[start..][..R * blocks].as_chunks::<R>().0;
        let scales = self.rows.scales[2 * start..][..2 * R * blocks].as_chunks::<R>().0.as_chunks::<2>().0;
        let size = self.kind.panel_bytes(blocks);
        let mut sums = [[isa.splat(0.0); P]; R];
        for p in 0..P {
            let lifted = self.lifted.map(|lifted| &lifted[(panel + p) * blocks..][..blocks]);
            let panel = self.panels[(panel + p) * size..][..size].split_at(self.kind.scale_bytes(blocks));
            let column = match (self.kind, lifted) {
                (Kind::Bytes, Some(lifted)) => lifted_bytes::<I, R>(isa, panel, lifted, x, scales),
                (Kind::Bytes, None) => bytes::<I, R>(isa, panel, x, scales),
                (Kind::Halves, _) => halves::<I, R>(isa, panel, x, scales),
                (Kind::HalvesPlus, _) => halves_plus::<I, R>(isa, panel, x, scales),
                (Kind::HalvesMin, _) => halves_min::<I, R>(isa, panel, x, scales),
            };
            for (sums, sum) in sums.iter_mut().zip(column) {
                sums[p] = sum;
            }
        }
        sums
    }
}

/// What one panel's sums of `R` rows are made of.
type Panel<'a> = (&'a [u8], &'a [u8]);
type Scales<const R: usize> = [[f32; R]; 2];

#[inline(always)]
fn bytes<I: Isa, const R: usize>(
    isa: I,
    (steps, quants): Panel<'_>,
    x: &[[[i8; BLOCK]; R]],
    scales: &[Scales<R>],
) -> [I::V; R] {
    let steps = bytemuck::cast_slice::<u8, u16>(steps).as_chunks::<LANES>().0;
    let quants = quants.as_chunks::<QUAD>().0.as_chunks::<8>().0;
    let mut sums = [isa.splat(0.0); R];
    for (((quants, steps), x), [scales, totals]) in quants.iter().zip(steps).zip(x).zip(scales) {
        ahead(isa, quants);
        let (dots, step) = (isa.dot_bytes(quants, x, totals), isa.load_f16(steps));
        for ((sum, &dot), &scale) in sums.iter_mut().zip(&dots).zip(scales) {
            *sum = isa.fma(isa.mul(dot, isa.splat(scale)), step, *sum);
        }
    }
    sums
}

#[inline(always)]
fn lifted_bytes<I: Isa, const R: usize>(
    isa: I,
    (steps, quants): Panel<'_>,
    lifted: &[[f32; LANES]],
    x: &[[[i8; BLOCK]; R]],
    scales: &[Scales<R>],
) -> [I::V; R] {
    let steps = bytemuck::cast_slice::<u8, u16>(steps).as_chunks::<LANES>().0.iter().zip(lifted);
    let quants = quants.as_chunks::<QUAD>().0.as_chunks::<8>().0;
    let mut sums = [isa.splat(0.0); R];
    for (((quants, (steps, lifted)), x), [scales, _]) in quants.iter().zip(steps).zip(x).zip(scales) {
        // Where there is so much to compute, asking costs more than waiting.
        if R < 6 {
            ahead(isa, quants);
        }
        let dots = isa.dot_lifted(quants, x);
        let (step, lifted) = (isa.load_f16(steps), isa.load(lifted));
        for ((sum, &dot), &scale) in sums.iter_mut().zip(&dots).zip(scales) {
            let dot = isa.sub(dot, lifted);
            *sum = isa.fma(isa.mul(dot, isa.splat(scale)), step, *sum);
        }
    }
    sums
}

#[inline(always)]
fn halves<I: Isa, const R: usize>(
    isa: I,
    (steps, quants): Panel<'_>,
    x: &[[[i8; BLOCK]; R]],
    scales: &[Scales<R>],
) -> [I::V; R] {
    let steps = bytemuck::cast_slice::<u8, u16>(steps).as_chunks::<LANES>().0;
    let quants = quants.as_chunks::<QUAD>().0.as_chunks::<4>().0;
    let mut sums = [isa.splat(0.0); R];
    for (((quants, steps), x), [scales, totals]) in quants.iter().zip(steps).zip(x).zip(scales) {
        ahead(isa, quants);
        let (dots, step) = (isa.dot_halves(quants, x), isa.load_f16(steps));
        for (((sum, &dot), &scale), &total) in sums.iter_mut().zip(&dots).zip(scales).zip(totals) {
            let dot = isa.sub(dot, isa.splat(8.0 * total));
            *sum = isa.fma(isa.mul(dot, isa.splat(scale)), step, *sum);
        }
    }
    sums
}

#[inline(always)]
fn halves_plus<I: Isa, const R: usize>(
    isa: I,
    (steps, quants): Panel<'_>,
    x: &[[[i8; BLOCK]; R]],
    scales: &[Scales<R>],
) -> [I::V; R] {
    let steps = bytemuck::cast_slice::<u8, u16>(steps).as_chunks::<LANES>().0.as_chunks::<2>().0;
    let quants = quants.as_chunks::<QUAD>().0.as_chunks::<4>().0;
    let mut sums = [isa.splat(0.0); R];
    for (((quants, [step, least]), x), [scales, totals]) in quants.iter().zip(steps).zip(x).zip(scales) {
        ahead(isa, quants);
        let (dots, step, least) = (isa.dot_halves(quants, x), isa.load_f16(step), isa.load_f16(least));
        for (((sum, &dot), &scale), &total) in sums.iter_mut().zip(&dots).zip(scales).zip(totals) {
            let more = isa.fma(isa.mul(dot, isa.splat(scale)), step, *sum);
            *sum = isa.fma(isa.splat(scale * total), least, more);
        }
    }
    sums
}

#[inline(always)]
fn halves_min<I: Isa, const R: usize>(
    isa: I,
    (steps, quants): Panel<'_>,
    x: &[[[i8; BLOCK]; R]],
    scales: &[Scales<R>],
) -> [I::V; R] {
    let quants = quants.as_chunks::<QUAD>().0.as_chunks::<4>().0;
    let mut sums = [isa.splat(0.0); R];
    let groups = quants.chunks(SUPER).zip(steps.as_chunks::<SUPER_BYTES>().0);
    for ((quants, steps), (x, scales)) in groups.zip(x.chunks(SUPER).zip(scales.chunks(SUPER))) {
        let (shared, each) = steps.split_at(4 * LANES);
        let shared = bytemuck::cast_slice::<u8, u16>(shared).as_chunks::<LANES>().0;
        let (step, min) = (isa.load_f16(&shared[0]), isa.load_f16(&shared[1]));
        let each = each.as_chunks::<LANES>().0.as_chunks::<2>().0;
        for (((quants, each), x), [scales, totals]) in quants.iter().zip(each).zip(x).zip(scales) {
            ahead(isa, quants);
            let dots = isa.dot_halves(quants, x);
            let step = isa.mul(step, isa.load_u8(&each[0]));
            let min = isa.mul(min, isa.load_u8(&each[1]));
            for (((sum, &dot), &scale), &total) in sums.iter_mut().zip(&dots).zip(scales).zip(totals) {
                let more = isa.fma(isa.mul(dot, isa.splat(scale)), step, *sum);
                *sum = isa.fma(isa.splat(-scale * total), min, more);
            }
        }
    }
    sums
}

/// Asks for the weights some blocks ahead; asking for what is not there does nothing.
#[inline(always)]
fn ahead<I: Isa, const N: usize>(isa: I, quants: &[[u8; QUAD]; N]) {
    for line in quants {
        isa.prefetch_ahead(line, AHEAD);
    }
}

#[cfg(test)]
mod tests;
