//! Rotary position embedding: pairs of a head's elements are turned by position times frequency.

use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::Isa;
use crate::{Cx, KernelError, Shape, Tensor, gpu};

const RULE: &str = "x is [rows, heads, width] and the angles [rows, at most width / 2]";

/// Which elements of a head make a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// Element `i` and element `i + half` (Llama as Hugging Face stores it).
    Halves,
    /// Elements `2i` and `2i + 1`.
    Adjacent,
}

/// Cosines and sines per row and pair; made once per step, used by every layer.
#[derive(Clone, Debug)]
pub struct RopeAngles {
    rows: usize,
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

// --- impl RopeAngles ---

impl RopeAngles {
    /// Computes the angles of rows at `positions`, with one inverse frequency per pair (scaled as the model asks).
    pub fn new(positions: &[u32], inv_freq: &[f32]) -> Self {
        let turns = positions.iter().flat_map(|&p| inv_freq.iter().map(move |f| p as f32 * f));
        let (sin, cos) = turns.map(f32::sin_cos).unzip();
        Self { rows: positions.len(), pairs: inv_freq.len(), cos, sin }
    }

    /// Takes angles in radians, `[rows][pairs]`, from a scheme of its own (several axes, say).
    pub fn from_turns(turns: &[f32], pairs: usize) -> Result<Self, KernelError> {
        let whole = pairs > 0 && turns.len().is_multiple_of(pairs);
        need(whole, "rope", "the angles are [rows, pairs]", &[Shape::from([turns.len()]), Shape::from([pairs])])?;
        let (sin, cos) = turns.iter().map(|turn| turn.sin_cos()).unzip();
        Ok(Self { rows: turns.len() / pairs, pairs, cos, sin })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Refuses so many rows of heads so wide, unless there are angles for them.
    pub(super) fn fit(&self, rows: usize, width: usize) -> Result<(), KernelError> {
        let given = Shape::from([self.rows, self.pairs]);
        need(rows == self.rows && 2 * self.pairs <= width, "rope", RULE, &[Shape::from([rows, width]), given])
    }
}

/// Turns `x` of shape `[rows, heads, width]`; elements beyond twice the number of pairs stay as they are.
pub fn rope(cx: &Cx, x: &Tensor, angles: &RopeAngles, pairs: RopePairs) -> Result<Tensor, KernelError> {
    let shape = x.shape();
    need(shape.rank() == 3, "rope", RULE, &[shape])?;
    angles.fit(x.dims()[0], x.dims()[2])?;
    if let Some(gpu) = cx.gpu() {
        let RopeAngles { cos, sin, pairs: count, .. } = angles;
        let adjacent = pairs == RopePairs::Adjacent;
        return gpu::ops::rope(gpu, x, &gpu::ops::Turns { cos, sin, pairs: *count, adjacent });
    }
    let cpu = cx.cpu_for("rope")?;
    let width = x.dims()[1] * x.dims()[2];
    let kernel = Rope { x: x.f32s()?, width, head: x.dims()[2], angles, pairs };
    Tensor::written(shape, |out| cpu.rows(out, width, &kernel))
}

struct Rope<'a> {
    x: &'a [f32],
    width: usize,
    head: usize,
    angles: &'a RopeAngles,
    pairs: RopePairs,
}

impl RowKernel for Rope<'_> {
    const COST: usize = 2;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let heads = self.x[row * self.width..][..self.width].chunks_exact(self.head);
        for (x, out) in heads.zip(out.chunks_exact_mut(self.head)) {
            turn_head(isa, x, (self.angles, row), self.pairs, out);
        }
    }
}

/// Turns one head of a row.
#[inline(always)]
pub(super) fn turn_head<I: Isa>(
    isa: I,
    x: &[f32],
    (angles, row): (&RopeAngles, usize),
    pairs: RopePairs,
    out: &mut [f32],
) {
    let count = angles.pairs;
    let cos = &angles.cos[row * count..][..count];
    let sin = &angles.sin[row * count..][..count];
    match pairs {
        RopePairs::Halves => halves(isa, x, (cos, sin), out),
        RopePairs::Adjacent => adjacent(x, (cos, sin), out),
    }
    out[2 * count..].copy_from_slice(&x[2 * count..]);
}

/// Uses no fused multiply-add: whole vectors and the rest of a head round alike, on every tier.
#[inline(always)]
fn halves<I: Isa>(isa: I, x: &[f32], (cos, sin): (&[f32], &[f32]), out: &mut [f32]) {
    let (a, b) = x[..2 * cos.len()].split_at(cos.len());
    let (to_a, to_b) = out[..2 * cos.len()].split_at_mut(cos.len());
    let turns = cos.chunks(16).zip(sin.chunks(16));
    let from = a.chunks(16).zip(b.chunks(16));
    let to = to_a.chunks_mut(16).zip(to_b.chunks_mut(16));
    for (((cos, sin), (a, b)), (to_a, to_b)) in turns.zip(from).zip(to) {
        let (cos, sin) = (isa.load_part(cos, 0.0), isa.load_part(sin, 0.0));
        let (a, b) = (isa.load_part(a, 0.0), isa.load_part(b, 0.0));
        isa.store_part(isa.sub(isa.mul(a, cos), isa.mul(b, sin)), to_a);
        isa.store_part(isa.add(isa.mul(b, cos), isa.mul(a, sin)), to_b);
    }
}

#[inline(always)]
fn adjacent(x: &[f32], (cos, sin): (&[f32], &[f32]), out: &mut [f32]) {
    let pairs = x.chunks_exact(2).zip(out.chunks_exact_mut(2));
    for ((x, out), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
        out[0] = x[0] * cos - x[1] * sin;
        out[1] = x[1] * cos + x[0] * sin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random};

    fn reference(x: &Tensor, positions: &[u32], inv_freq: &[f32], style: RopePairs) -> Vec<f32> {
        let (heads, width, pairs) = (x.dims()[1], x.dims()[2], inv_freq.len());
        let mut out = x.f32s().unwrap().to_vec();
        for (row, &position) in positions.iter().enumerate() {
            for head in 0..heads {
                let at = (row * heads + head) * width;
                for (i, f) in inv_freq.iter().enumerate() {
                    let (a, b) = match style {
                        RopePairs::Halves => (at + i, at + i + pairs),
                        RopePairs::Adjacent => (at + 2 * i, at + 2 * i + 1),
                    };
                    let (sin, cos) = (f64::from(position) * f64::from(*f)).sin_cos();
                    let (xa, xb) = (f64::from(out[a]), f64::from(out[b]));
                    out[a] = (xa * cos - xb * sin) as f32;
                    out[b] = (xb * cos + xa * sin) as f32;
                }
            }
        }
        out
    }

    #[test]
    fn both_pairings_follow_their_definitions() {
        let positions = [0, 1, 7, 130];
        for (width, pairs) in [(64, 32), (48, 20), (6, 3)] {
            let inv_freq: Vec<f32> = (0..pairs).map(|i| 1e4f32.powf(-(i as f32) / pairs as f32)).collect();
            let x = random(1, [4, 3, width]);
            let angles = RopeAngles::new(&positions, &inv_freq);
            for style in [RopePairs::Halves, RopePairs::Adjacent] {
                let want = reference(&x, &positions, &inv_freq, style);
                on_every_tier(|cx| {
                    let whole = rope(cx, &x, &angles, style).unwrap();
                    close(whole.f32s().unwrap(), &want, 2e-5);
                    for row in 0..4 {
                        let one = RopeAngles::new(&positions[row..=row], &inv_freq);
                        let alone = rope(cx, &x.rows(row..row + 1).unwrap(), &one, style).unwrap();
                        assert_eq!(alone.bytes(), whole.rows(row..row + 1).unwrap().bytes());
                    }
                });
            }
        }
    }

    #[test]
    fn angles_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let x = random(1, [2, 1, 8]);
        assert!(rope(&cx, &x, &RopeAngles::new(&[0], &[1.0]), RopePairs::Halves).is_err());
        assert!(rope(&cx, &x, &RopeAngles::new(&[0, 1], &[1.0; 5]), RopePairs::Halves).is_err());
        assert!(RopeAngles::from_turns(&[0.0; 5], 2).is_err());
        assert_eq!(RopeAngles::from_turns(&[0.0; 6], 2).unwrap().rows(), 3);
    }
}
