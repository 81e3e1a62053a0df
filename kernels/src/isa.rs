//! Sixteen `f32` lanes, one vocabulary for every tier. A kernel is written once against [`Isa`] and compiled per
//! tier: its body is `#[inline(always)]` and ends up inside a function that has the tier's target features. Closures do
//! not: lanes are computed in plain loops, or their instructions become calls.

use half::bf16;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod interleave;
mod portable;
pub(crate) use interleave::{EIGHT, interleave};
pub(crate) use portable::Portable;

/// Lanes of a vector, on every tier: reductions have the same tree everywhere.
pub(crate) const LANES: usize = 16;
/// Bytes of four weights of each of sixteen outputs.
pub(crate) const QUAD: usize = 64;

/// What two weights may add up to, negative or positive, beside activations of 0 to 254.
pub(crate) const PAIR: i16 = 129;

/// One tier's lanes. A value is the proof that this machine has the tier's instructions.
pub(crate) trait Isa: Copy {
    /// Sixteen lanes.
    type V: Copy;
    /// Rows that tiles of linear layers come in, most first: their sums fit the registers.
    const ROW_TILES: &'static [usize];
    /// Words that a pair of activations takes in a packed row.
    const PAIR_WORDS: usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V;
    fn store(self, v: Self::V, out: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the tier has FMA.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: `b` when either is not a number.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`: `b` when either is not a number.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;
    /// 2 to an integral power between -126 and 127.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `if a < b { yes } else { no }`.
    fn where_lt(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// Asks for the cache line of `x`, which will be read soon.
    fn prefetch<T>(self, x: &T);
    /// Asks for the cache line so many bytes behind `x`, which need not be there.
    fn prefetch_ahead<T>(self, x: &T, bytes: usize);
    /// Widens sixteen `f16`, given as their bits.
    fn load_f16(self, x: &[u16; LANES]) -> Self::V;
    fn load_u8(self, x: &[u8; LANES]) -> Self::V;
    /// Rounds activations to `bf16` and lays each pair of them in `PAIR_WORDS` words, from the first.
    fn round_pairs(self, x: &[f32; LANES]) -> [u32; LANES];
    /// Widens the second of each pair, and the first.
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2];
    /// Adds `x[1] * w[1]`, then `x[0] * w[0]`, to each row's sum; the products are exact, each addition is rounded. `w` are
    /// two weights of each of sixteen outputs.
    fn fma_pairs<const R: usize>(self, x: &[u32], w: &[[bf16; 2]; LANES], sums: [Self::V; R]) -> [Self::V; R];
    /// Exact dot products of `R` rows of 32 bytes, above -128 and of known totals, with a block of sixteen outputs:
    /// `[8][16 outputs][4]` signed bytes.
    fn dot_bytes<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R], totals: &[f32; R]) -> [Self::V; R];
    /// As [`Isa::dot_bytes`], for rows whose bits are unsigned bytes up to 254, and weights of which no two neighbours (the
    /// first two of four, or the last) add up to more than [`PAIR`]: fewer instructions, since two products fit 16 bits.
    fn dot_lifted<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R]) -> [Self::V; R];
    /// Exact dot products with a block of unsigned half bytes: the lower halves of `[4][16 outputs][4]` are the first
    /// sixteen weights of each output, the upper halves the last.
    fn dot_halves<const R: usize>(self, w: &[[u8; QUAD]; 4], x: &[[i8; 32]; R]) -> [Self::V; R];

    /// Integers between -127 and 127, as bytes.
    #[inline(always)]
    fn bytes(self, halves: [Self::V; 2]) -> [i8; 32] {
        let mut out = [0; 32];
        for (out, half) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(halves) {
            for (out, x) in out.iter_mut().zip(self.lanes(half)) {
                *out = x as i8;
            }
        }
        out
    }

    /// Lays eight numbers of each of `R` rows out as columns.
    #[inline(always)]
    fn interleave_eight<const R: usize>(self, rows: [&[f32; EIGHT]; R], out: &mut [[f32; R]; EIGHT]) {
        interleave::one_by_one(rows, out);
    }

    /// Loads up to sixteen elements and fills the rest.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::V {
        match x.first_chunk() {
            Some(whole) => self.load(whole),
            None => {
                let mut lanes = [fill; LANES];
                lanes[..x.len()].copy_from_slice(x);
                self.load(&lanes)
            }
        }
    }

    /// Stores the first `out.len()` lanes, at most sixteen.
    #[inline(always)]
    fn store_part(self, v: Self::V, out: &mut [f32]) {
        match out.first_chunk_mut() {
            Some(whole) => self.store(v, whole),
            None => {
                let lanes = self.lanes(v);
                out.copy_from_slice(&lanes[..out.len()]);
            }
        }
    }

    #[inline(always)]
    fn lanes(self, v: Self::V) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        self.store(v, &mut lanes);
        lanes
    }

    /// The sum of the lanes, as a fixed tree.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut lanes = self.lanes(v);
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }

    /// The greatest lane that is a number.
    #[inline(always)]
    fn greatest(self, v: Self::V) -> f32 {
        self.lanes(v).into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// The `f32` bits of a number rounded to `bf16`, ties to even.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    // What is not a number stays so, whichever of its bits are cut off.
    if x.is_nan() { (bits | 0x0040_0000) & 0xffff_0000 } else { rounded }
}

/// A computation that is compiled once per tier. `run` is `#[inline(always)]` in every implementation.
pub(crate) trait Kernel {
    /// Whether it takes dot products of narrow numbers: only then is it compiled for the tier that has them.
    const DOTS: bool = false;
    type Out;
    fn run<I: Isa>(self, isa: I) -> Self::Out;
}

/// An element type that widens to `f32` lanes: the weights and the KV cache.
pub(crate) trait Lanes: crate::Element {
    fn load<I: Isa>(isa: I, x: &[Self; LANES]) -> I::V;
    fn wide(self) -> f32;
    fn narrow(x: f32) -> Self;
    /// The elements, where they are `f32` already.
    fn floats_mut(x: &mut [Self]) -> Option<&mut [f32]>;
}

impl Lanes for f32 {
    #[inline(always)]
    fn load<I: Isa>(isa: I, x: &[Self; LANES]) -> I::V {
        isa.load(x)
    }

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn floats_mut(x: &mut [Self]) -> Option<&mut [f32]> {
        Some(x)
    }
}

impl Lanes for bf16 {
    #[inline(always)]
    fn load<I: Isa>(isa: I, x: &[Self; LANES]) -> I::V {
        isa.load_bf16(x)
    }

    #[inline(always)]
    fn wide(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn narrow(x: f32) -> Self {
        Self::from_f32(x)
    }

    #[inline(always)]
    fn floats_mut(_x: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::check::on_every_tier;

    struct Probe;

    impl Kernel for Probe {
        type Out = ();

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            let up: [f32; LANES] = std::array::from_fn(|i| i as f32 - 7.5);
            let (a, two) = (isa.load(&up), isa.splat(2.0));
            assert_eq!(isa.lanes(isa.fma(a, two, two)), up.map(|x| x * 2.0 + 2.0));
            assert_eq!(isa.lanes(isa.sub(isa.add(a, two), isa.mul(a, two))), up.map(|x| 2.0 - x));
            assert_eq!(isa.lanes(isa.div(a, two)), up.map(|x| x / 2.0));
            assert_eq!(isa.lanes(isa.max(a, two)), up.map(|x| x.max(2.0)));
            assert_eq!(isa.lanes(isa.min(a, two)), up.map(|x| x.min(2.0)));
            assert_eq!(isa.lanes(isa.round(a)), up.map(f32::round_ties_even));
            assert_eq!(isa.lanes(isa.where_lt(a, two, two, a)), up.map(|x| if x < 2.0 { 2.0 } else { x }));
            assert_eq!(isa.lanes(isa.load_bf16(&up.map(bf16::from_f32))), up);
            let powers = isa.lanes(isa.pow2(isa.round(a)));
            assert_eq!(powers, up.map(|x| x.round_ties_even().exp2()));
            assert_eq!((isa.sum(a), isa.greatest(a)), (0.0, 7.5));
            let none = isa.splat(f32::NAN);
            assert!(isa.lanes(isa.max(two, none))[0].is_nan() && isa.lanes(isa.min(two, none))[0].is_nan());
            assert_eq!((isa.lanes(isa.max(none, two)), isa.lanes(isa.min(none, two))), ([2.0; LANES], [2.0; LANES]));
            assert_eq!(isa.lanes(isa.where_lt(none, two, a, two)), [2.0; LANES]);
            let bytes = std::array::from_fn(|i| i as u8 * 17);
            assert_eq!(isa.lanes(isa.load_u8(&bytes)), bytes.map(f32::from));
            assert_eq!(isa.lanes(isa.load_f16(&up.map(|x| f16::from_f32(x).to_bits()))), up);
            let mut out = [0.0; 3];
            isa.store_part(isa.load_part(&[1.0, 2.0], 9.0), &mut out);
            assert_eq!(out, [1.0, 2.0, 9.0]);
        }
    }

    #[test]
    fn lanes_compute_the_same_numbers_on_every_tier() {
        on_every_tier(|cx| cx.cpu_for("probe").unwrap().launch(Probe));
    }

    struct Pairs;

    impl Kernel for Pairs {
        const DOTS: bool = true;
        type Out = ();

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            let two_to_24 = 16_777_216.0;
            // Ties, which go to the even one; products of which the second goes first, or a 1 is lost in it.
            let rows = [[1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0], [two_to_24, two_to_24], [f32::NAN, 0.0]];
            let mut words = Vec::new();
            for row in rows {
                let mut x = [0.0; LANES];
                x[..2].copy_from_slice(&row);
                words.extend_from_slice(&isa.round_pairs(&x)[..I::PAIR_WORDS]);
            }
            let weights: [[bf16; 2]; LANES] = std::array::from_fn(|i| [i as f32, -(i as f32)].map(bf16::from_f32));
            let sums = isa.fma_pairs(&words, &weights, [isa.splat(1.0); 3]);
            assert_eq!(isa.lanes(sums[0]), std::array::from_fn(|i| 1.0 - i as f32 / 64.0));
            assert_eq!(isa.lanes(sums[1]), std::array::from_fn(|i| if i < 2 { 1.0 } else { 0.0 }));
            assert!(isa.lanes(sums[2]).iter().all(|sum| sum.is_nan()));
        }
    }

    struct Dots;

    impl Kernel for Dots {
        const DOTS: bool = true;
        type Out = ();

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            let mut w: [[u8; QUAD]; 8] = std::array::from_fn(|k| std::array::from_fn(|i| (k * 67 + i * 41) as u8));
            // Outputs at both ends, where sums are as large as they get.
            for quad in &mut w {
                quad[..4].fill(0x80);
                quad[4..8].fill(0x7f);
                quad[8..12].fill(0xff);
            }
            let x: [[i8; 32]; 3] = [[127; 32], [-127; 32], std::array::from_fn(|k| (k * 89 % 255) as i8)];
            let totals = x.map(|x| x.into_iter().map(f32::from).sum());
            let byte = |n: usize, k: usize| i32::from(w[k / 4][n * 4 + k % 4] as i8);
            let half = |n: usize, k: usize| i32::from(w[k % 16 / 4][n * 4 + k % 4] >> (k / 16 * 4) & 15);
            let first = w.first_chunk::<4>().unwrap();
            let (bytes, halves) = (isa.dot_bytes(&w, &x, &totals), isa.dot_halves(first, &x));
            for r in 0..x.len() {
                let want = |weight: &dyn Fn(usize, usize) -> i32| -> [f32; LANES] {
                    std::array::from_fn(|n| (0..32).map(|k| weight(n, k) * i32::from(x[r][k])).sum::<i32>() as f32)
                };
                assert_eq!((isa.lanes(bytes[r]), isa.lanes(halves[r])), (want(&byte), want(&half)), "row {r}");
            }
        }
    }

    #[test]
    fn narrow_products_are_exact_and_added_in_the_same_order_on_every_tier() {
        on_every_tier(|cx| cx.cpu_for("probe").unwrap().launch(Pairs));
        on_every_tier(|cx| cx.cpu_for("probe").unwrap().launch(Dots));
    }
}
