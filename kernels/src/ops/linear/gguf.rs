//! Weights that come in GGUF's blocks, laid out anew for the quantised forms; and floats, quantised the same way.

use half::f16;

use super::blocks::{BLOCK, Blocks, Kind, SUPER, SUPER_BYTES};
use crate::isa::{LANES, PAIR, QUAD};
use crate::{KernelError, Shape, error::need};

/// The layout of a row's blocks in a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// 32 signed bytes and a scale.
    Q8_0,
    /// 32 half bytes and a scale.
    Q4_0,
    /// 32 half bytes; a scale and what is added.
    Q4_1,
    /// 256 half bytes; a scale and a minimum for each 32.
    Q4K,
    /// 256 weights of six bits; a scale for each 16. Kept as [`BlockFormat::Q8_0`], rounded once more.
    Q6K,
}

// --- impl BlockFormat ---

impl BlockFormat {
    /// Returns the weights of a block.
    pub fn block_len(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => BLOCK,
            Self::Q4K | Self::Q6K => SUPER * BLOCK,
        }
    }

    /// Returns the bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }
}

/// Lays out `[outputs, inputs]` weights given in blocks.
pub(super) fn blocks(
    format: BlockFormat,
    bytes: &[u8],
    (outputs, inputs): (usize, usize),
) -> Result<Blocks, KernelError> {
    let shapes = [Shape::from([outputs, inputs]), Shape::from([bytes.len()])];
    need(inputs.is_multiple_of(format.block_len()), "pack_blocks", "rows are whole blocks", &shapes)?;
    let row = (inputs / format.block_len()).saturating_mul(format.block_bytes());
    let fits = outputs.checked_mul(row) == Some(bytes.len());
    need(fits, "pack_blocks", "the bytes are the blocks of [outputs, inputs]", &shapes)?;
    let kind = match format {
        BlockFormat::Q8_0 | BlockFormat::Q6K => Kind::Bytes,
        BlockFormat::Q4_0 => Kind::Halves,
        BlockFormat::Q4_1 => Kind::HalvesPlus,
        BlockFormat::Q4K => Kind::HalvesMin,
    };
    Blocks::filled(kind, (outputs, inputs / BLOCK), |panel, steps, quants| {
        for lane in 0..LANES.min(outputs - panel * LANES) {
            let blocks = bytes[(panel * LANES + lane) * row..][..row].chunks_exact(format.block_bytes());
            for (i, block) in blocks.enumerate() {
                let mut place = Place { steps, quants, lane };
                match format {
                    BlockFormat::Q8_0 => place.q8_0(i, block),
                    BlockFormat::Q4_0 => place.q4_0(i, block),
                    BlockFormat::Q4_1 => place.q4_1(i, block),
                    BlockFormat::Q4K => place.q4_k(i, block),
                    BlockFormat::Q6K => place.q6_k(i, block),
                }
            }
        }
    })
}

/// Quantises rows of floats; `row` writes row `n`.
pub(super) fn quantised(
    kind: Kind,
    (outputs, inputs): (usize, usize),
    row: impl Fn(usize, &mut [f32]),
) -> Result<Blocks, KernelError> {
    let count = inputs.div_ceil(BLOCK);
    let mut floats = vec![0.0; count * BLOCK];
    Blocks::filled(kind, (outputs, count), |panel, steps, quants| {
        for lane in 0..LANES.min(outputs - panel * LANES) {
            row(panel * LANES + lane, &mut floats[..inputs]);
            let mut place = Place { steps, quants, lane };
            for (i, x) in floats.as_chunks().0.iter().enumerate() {
                match kind {
                    Kind::Bytes => place.round_pairs(i, x),
                    _ => place.round_halves(i, x),
                }
            }
        }
    })
}

/// One output's place in a panel.
struct Place<'a> {
    steps: &'a mut [u8],
    quants: &'a mut [u8],
    lane: usize,
}

// --- impl Place ---

impl Place<'_> {
    /// Stores the `f16` of this output in the `index`th row of scales.
    fn step(&mut self, index: usize, step: [u8; 2]) {
        self.steps[(index * LANES + self.lane) * 2..][..2].copy_from_slice(&step);
    }

    /// Stores 32 bytes of a block as `[8][16 outputs][4]`.
    fn bytes(&mut self, block: usize, x: [u8; BLOCK]) {
        let quads = self.quants[block * BLOCK * LANES..][..BLOCK * LANES].chunks_exact_mut(QUAD);
        for (quad, x) in quads.zip(x.as_chunks::<4>().0) {
            quad[self.lane * 4..][..4].copy_from_slice(x);
        }
    }

    /// Stores 32 half bytes of a block as `[4][16 outputs][4]`, the first sixteen below the last.
    fn halves(&mut self, block: usize, x: [u8; BLOCK]) {
        let (low, high) = x.split_at(BLOCK / 2);
        let size = BLOCK * LANES / 2;
        let quads = self.quants[block * size..][..size].chunks_exact_mut(QUAD);
        for (quad, (low, high)) in quads.zip(low.chunks_exact(4).zip(high.chunks_exact(4))) {
            for ((out, low), high) in quad[self.lane * 4..][..4].iter_mut().zip(low).zip(high) {
                *out = low | (high << 4);
            }
        }
    }

    fn q8_0(&mut self, block: usize, from: &[u8]) {
        self.step(block, [from[0], from[1]]);
        self.bytes(block, std::array::from_fn(|i| from[2 + i]));
    }

    fn q4_0(&mut self, block: usize, from: &[u8]) {
        self.step(block, [from[0], from[1]]);
        self.split_halves(block, &from[2..]);
    }

    fn q4_1(&mut self, block: usize, from: &[u8]) {
        self.step(2 * block, [from[0], from[1]]);
        self.step(2 * block + 1, [from[2], from[3]]);
        self.split_halves(block, &from[4..]);
    }

    /// Stores a block whose sixteen bytes hold the first weights in their lower halves, the last in the upper.
    fn split_halves(&mut self, block: usize, from: &[u8]) {
        self.halves(block, std::array::from_fn(|i| if i < 16 { from[i] & 15 } else { from[i - 16] >> 4 }));
    }

    fn q4_k(&mut self, group: usize, from: &[u8]) {
        let shared = &mut self.steps[group * SUPER_BYTES..][..SUPER_BYTES];
        let (lane, packed) = (self.lane, &from[4..16]);
        shared[2 * lane..][..2].copy_from_slice(&from[..2]);
        shared[2 * (LANES + lane)..][..2].copy_from_slice(&from[2..4]);
        for i in 0..SUPER {
            let (step, min) = six_bits(packed, i);
            shared[4 * LANES + 2 * i * LANES + lane] = step;
            shared[4 * LANES + (2 * i + 1) * LANES + lane] = min;
        }
        for i in 0..SUPER {
            let pair = &from[16 + i / 2 * BLOCK..][..BLOCK];
            let quants = std::array::from_fn(|k| if i % 2 == 0 { pair[k] & 15 } else { pair[k] >> 4 });
            self.halves(group * SUPER + i, quants);
        }
    }

    fn q6_k(&mut self, group: usize, from: &[u8]) {
        let (lows, highs, steps) = (&from[..128], &from[128..192], &from[192..208]);
        let step = f16::from_le_bytes([from[208], from[209]]).to_f32();
        for block in 0..SUPER {
            let (half, quarter) = (block / 4, block % 4);
            let floats = std::array::from_fn(|k| {
                let low = lows[half * 64 + quarter % 2 * 32 + k] >> (quarter / 2 * 4) & 15;
                let high = highs[half * 32 + k] >> (quarter * 2) & 3;
                let scale = step * f32::from(steps[half * 8 + quarter * 2 + k / 16].cast_signed());
                scale * (f32::from(low | (high << 4)) - 32.0)
            });
            self.round_bytes(group * SUPER + block, &floats);
        }
    }

    /// The largest magnitude lands on 127.
    fn round_bytes(&mut self, block: usize, x: &[f32; BLOCK]) {
        let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let step = half_step(most / 127.0);
        self.step(block, step.to_le_bytes());
        let per = per_step(step);
        self.bytes(block, x.map(|x| ((x * per).round_ties_even().clamp(-127.0, 127.0) as i8).cast_unsigned()));
    }

    /// As [`Self::round_bytes`], but no two neighbours add up to more than [`PAIR`]: they are held below that, or lie on a
    /// larger scale, whichever costs less.
    fn round_pairs(&mut self, block: usize, x: &[f32; BLOCK]) {
        const TRIES: u8 = 4;
        let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
        let pairs = x.as_chunks::<2>().0.iter().map(|[a, b]| (a + b).abs());
        let more = (pairs.fold(0.0f32, f32::max) / f32::from(PAIR - 1) - most).max(0.0);
        let mut best = (f32::INFINITY, f16::ZERO, [0; BLOCK]);
        for i in 0..=if more > 0.0 { TRIES } else { 0 } {
            let step = half_step(most + more * f32::from(i) / f32::from(TRIES));
            let per = per_step(step);
            let mut quants = x.map(|x| nearest((x * per).clamp(-127.0, 127.0)) as i16);
            quants.as_chunks_mut().0.iter_mut().for_each(hold_pair);
            let off = |(x, q): (&f32, &i16)| (x - f32::from(*q) * step.to_f32()).powi(2);
            let error = x.iter().zip(&quants).map(off).sum::<f32>();
            if i == 0 || error < best.0 {
                best = (error, step, quants);
            }
        }
        self.step(block, best.1.to_le_bytes());
        self.bytes(block, best.2.map(|q| (q as i8).cast_unsigned()));
    }

    /// The number of largest magnitude lands on -8: one end of the range.
    fn round_halves(&mut self, block: usize, x: &[f32; BLOCK]) {
        let most = x.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
        let step = half_step(most / -8.0);
        self.step(block, step.to_le_bytes());
        let per = per_step(step);
        self.halves(block, x.map(|x| ((x * per).round_ties_even().clamp(-8.0, 7.0) + 8.0) as u8));
    }
}

/// The nearest integer, ties to even, of small numbers: they are rounded in the adder, without a call for each.
fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23
    (x + SHIFT) - SHIFT
}

/// Makes both of a pair smaller, if they add up to more than they may.
fn hold_pair(pair: &mut [i16; 2]) {
    let [a, b] = *pair;
    let over = ((a + b).abs() - PAIR).max(0);
    *pair = [a - a.signum() * (over / 2), b - b.signum() * (over - over / 2)];
}

/// Returns a step as it is stored: the nearest `f16` of those that are finite, or the next larger one where the nearest is
/// so much smaller, as among the tiny ones, that the largest number would be cut off.
fn half_step(step: f32) -> f16 {
    let near = f16::from_f32(step.clamp(-65504.0, 65504.0));
    let short = near.to_f32().abs() < step.abs() * 0.997 && near.to_f32().abs() < 65504.0;
    if short { f16::from_bits(near.to_bits() + 1) } else { near }
}

/// Returns by what numbers are multiplied to count steps of the stored size: small ones are stored coarsely.
fn per_step(step: f16) -> f32 {
    if step.to_f32() == 0.0 { 0.0 } else { 1.0 / step.to_f32() }
}

/// The scale and the minimum of the block `i` of eight, six bits each, in twelve bytes.
fn six_bits(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (packed[i] & 63, packed[i + 4] & 63);
    }
    let step = (packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4);
    let min = (packed[i + 4] >> 4) | (packed[i] >> 6 << 4);
    (step, min)
}
