//! Normal noise that depends on its place alone, so that cutting a result into parts cannot change it.

use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Shape, Tensor, gpu, maths};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Numbers that one counter gives.
const FOUR: usize = 4;

/// Which noise: the same key gives the same numbers, whenever and wherever they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoiseKey {
    /// The seed.
    pub seed: u64,
    /// Which of a seed's independent noises.
    pub stream: u32,
}

/// Independent normal numbers of mean 0 and variance 1, `[rows, width]`: rows `first_row ..` of an endless table. The
/// numbers 4i to 4i + 3 of row r are made of the words that Philox4x32-10 (Salmon et al. 2011) gives for the counter
/// (i, r, stream, 0), two by two, by the transform of Box and Muller.
pub fn normal(cx: &Cx, key: NoiseKey, first_row: u32, shape: [usize; 2]) -> Result<Tensor, KernelError> {
    let ([rows, width], shape) = (shape, Shape::new(&shape)?);
    let last = u32::try_from(rows).ok().and_then(|rows| first_row.checked_add(rows));
    need(last.is_some() && u32::try_from(width).is_ok(), "normal", "places are 32 bits wide", &[shape])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::normal(gpu, key, first_row, shape);
    }
    let cpu = cx.cpu_for("normal")?;
    Tensor::written(shape, |out| cpu.rows(out, width, &Normal { key, first_row }))
}

struct Normal {
    key: NoiseKey,
    first_row: u32,
}

impl RowKernel for Normal {
    const COST: usize = 12;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let place = [self.first_row + row as u32, self.key.stream, 0];
        for (part, out) in out.chunks_mut(LANES * FOUR).enumerate() {
            let numbers = sixteen(isa, (part * LANES) as u32, place, self.key.seed);
            let mut joined = [0.0; LANES * FOUR];
            for (lane, four) in joined.as_chunks_mut::<FOUR>().0.iter_mut().enumerate() {
                *four = std::array::from_fn(|i| numbers[i][lane]);
            }
            out.copy_from_slice(&joined[..out.len()]);
        }
    }
}

/// The four numbers of sixteen counters from `first` on.
#[inline(always)]
fn sixteen<I: Isa>(isa: I, first: u32, place: [u32; 3], seed: u64) -> [[f32; LANES]; FOUR] {
    let mut counter = [[0; LANES], [place[0]; LANES], [place[1]; LANES], [place[2]; LANES]];
    for (lane, word) in counter[0].iter_mut().enumerate() {
        *word = first.wrapping_add(lane as u32);
    }
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let (a, b) = gaussian(isa, &words[0], &words[1]);
    let (c, d) = gaussian(isa, &words[2], &words[3]);
    [a, b, c, d]
}

/// The four random words of counters.
#[inline(always)]
fn philox<const N: usize>(mut counter: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    for _ in 0..ROUNDS {
        let [mut a, mut b, mut c, mut d] = [[0; N]; 4];
        for lane in 0..N {
            let first = u64::from(counter[0][lane]) * u64::from(MULTIPLIERS[0]);
            let second = u64::from(counter[2][lane]) * u64::from(MULTIPLIERS[1]);
            a[lane] = (second >> 32) as u32 ^ counter[1][lane] ^ key[0];
            b[lane] = second as u32;
            c[lane] = (first >> 32) as u32 ^ counter[3][lane] ^ key[1];
            d[lane] = first as u32;
        }
        counter = [a, b, c, d];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Two independent normal numbers of two random words each.
#[inline(always)]
fn gaussian<I: Isa>(isa: I, a: &[u32; LANES], b: &[u32; LANES]) -> ([f32; LANES], [f32; LANES]) {
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    let (mut distance, mut turn) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        distance[lane] = ((a[lane] >> 8) as f32 + 0.5) * UNIT;
        turn[lane] = (b[lane] >> 8) as f32 * UNIT;
    }
    let mut radius = isa.lanes(isa.mul(maths::ln(isa, distance), isa.splat(-2.0)));
    for lane in &mut radius {
        // A logarithm that is rounded may end just beyond zero.
        *lane = lane.max(0.0).sqrt();
    }
    let (radius, angle) = (isa.load(&radius), isa.mul(isa.load(&turn), isa.splat(std::f32::consts::TAU)));
    let (sin, cos) = maths::sin_cos(isa, angle);
    (isa.lanes(isa.mul(radius, cos)), isa.lanes(isa.mul(radius, sin)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier};

    const KEY: NoiseKey = NoiseKey { seed: 7 << 32 | 3, stream: 1 };

    fn draw(cx: &Cx, key: NoiseKey, first_row: u32, shape: [usize; 2]) -> Vec<f32> {
        normal(cx, key, first_row, shape).unwrap().f32s().unwrap().to_vec()
    }

    #[test]
    fn philox_matches_its_published_vectors() {
        let words = |counter: u32, key: u32| philox([[counter]; 4], [key; 2]).map(|word| word[0]);
        assert_eq!(words(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(words(u32::MAX, u32::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn numbers_follow_their_definition_in_f64() {
        let wanted = |row: u32, at: usize| {
            let counter = [[(at / 4) as u32], [row], [KEY.stream], [0]];
            let words = philox(counter, [KEY.seed as u32, (KEY.seed >> 32) as u32]);
            let unit = |word: usize| f64::from(words[word][0] >> 8) / f64::from(1 << 24);
            let (a, b) = if at % 4 < 2 { (unit(0), unit(1)) } else { (unit(2), unit(3)) };
            let angle = std::f64::consts::TAU * b;
            let radius = (-2.0 * (a + 0.5 / f64::from(1 << 24)).ln()).sqrt();
            (radius * if at.is_multiple_of(2) { angle.cos() } else { angle.sin() }) as f32
        };
        on_every_tier(|cx| {
            for width in [1, 7, 64, 1_202] {
                let places = (9..12).flat_map(|row| (0..width).map(move |at| (row, at)));
                let want: Vec<f32> = places.map(|(row, at)| wanted(row, at)).collect();
                close(&draw(cx, KEY, 9, [3, width]), &want, 4e-6);
            }
        });
    }

    #[test]
    fn noise_is_normal_and_depends_on_its_place_alone() {
        let cx = Cx::with_threads(2).unwrap();
        let all = draw(&cx, KEY, 0, [100, 1_202]);
        assert_eq!(draw(&cx, KEY, 41, [1, 1_202]), all[41 * 1_202..][..1_202]);
        for other in [NoiseKey { seed: 8, ..KEY }, NoiseKey { stream: 2, ..KEY }] {
            assert_ne!(draw(&cx, other, 0, [1, 1_202]), all[..1_202]);
        }
        let mean = all.iter().sum::<f32>() / all.len() as f32;
        let variance = all.iter().map(|v| v * v).sum::<f32>() / all.len() as f32;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn rows_beyond_the_table_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        assert!(normal(&cx, KEY, u32::MAX - 1, [3, 4]).is_err());
        assert!(draw(&cx, KEY, 0, [0, 4]).is_empty() && draw(&cx, KEY, 0, [4, 0]).is_empty());
    }
}
