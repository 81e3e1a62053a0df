//! Lanes as a plain array, without FMA: what every machine can do, and what the compiler makes of it.

use std::array::from_fn;

use half::{bf16, f16};

use super::{Isa, LANES, QUAD, bf16_bits};

/// The tier every machine has.
#[derive(Clone, Copy)]
pub(crate) struct Portable(());

impl Portable {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Isa for Portable {
    type V = [f32; LANES];
    const ROW_TILES: &'static [usize] = &[2, 1];
    const PAIR_WORDS: usize = 2;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        *x
    }

    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        from_fn(|i| f32::from_bits(u32::from(x[i].to_bits()) << 16))
    }

    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; LANES]) {
        *out = v;
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    /// Adds and takes away 1.5 * 2^23, which rounds in the adder; far numbers are integers already.
    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        const SHIFT: f32 = 12_582_912.0;
        from_fn(|i| if v[i].abs() < 4_194_304.0 { (v[i] + SHIFT) - SHIFT } else { v[i] })
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        from_fn(|i| f32::from_bits((n[i] as i32).wrapping_add(127).wrapping_shl(23) as u32))
    }

    #[inline(always)]
    fn where_lt(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn prefetch<T>(self, _x: &T) {}

    #[inline(always)]
    fn prefetch_ahead<T>(self, _x: &T, _bytes: usize) {}

    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::V {
        from_fn(|i| f16::from_bits(x[i]).to_f32())
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        from_fn(|i| f32::from(x[i]))
    }

    #[inline(always)]
    fn round_pairs(self, x: &[f32; LANES]) -> [u32; LANES] {
        x.map(bf16_bits)
    }

    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        [w.map(|pair| pair[1].to_f32()), w.map(|pair| pair[0].to_f32())]
    }

    #[inline(always)]
    fn fma_pairs<const R: usize>(self, x: &[u32], w: &[[bf16; 2]; LANES], mut sums: [Self::V; R]) -> [Self::V; R] {
        for (sum, x) in sums.iter_mut().zip(x.as_chunks::<2>().0) {
            let (low, high) = (f32::from_bits(x[0]), f32::from_bits(x[1]));
            *sum = from_fn(|i| (sum[i] + high * w[i][1].to_f32()) + low * w[i][0].to_f32());
        }
        sums
    }

    #[inline(always)]
    fn dot_bytes<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R], _: &[f32; R]) -> [Self::V; R] {
        let mut sums = [[0i32; LANES]; R];
        for (quad, w) in w.iter().enumerate() {
            add_quad(&w.map(u8::cast_signed), quad, x, &mut sums);
        }
        sums.map(|sums| sums.map(|sum| sum as f32))
    }

    #[inline(always)]
    fn dot_lifted<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R]) -> [Self::V; R] {
        let x = x.map(|x| x.map(i8::cast_unsigned));
        let mut sums = [[0i32; LANES]; R];
        for (quad, w) in w.iter().enumerate() {
            add_quad(&w.map(u8::cast_signed), quad, &x, &mut sums);
        }
        sums.map(|sums| sums.map(|sum| sum as f32))
    }

    #[inline(always)]
    fn dot_halves<const R: usize>(self, w: &[[u8; QUAD]; 4], x: &[[i8; 32]; R]) -> [Self::V; R] {
        let mut sums = [[0i32; LANES]; R];
        for (quad, w) in w.iter().enumerate() {
            add_quad(&w.map(|byte| (byte & 15) as i8), quad, x, &mut sums);
            add_quad(&w.map(|byte| (byte >> 4) as i8), quad + 4, x, &mut sums);
        }
        sums.map(|sums| sums.map(|sum| sum as f32))
    }
}

#[inline(always)]
fn add_quad<X: Copy + Into<i32>, const R: usize>(
    w: &[i8; QUAD],
    quad: usize,
    x: &[[X; 32]; R],
    sums: &mut [[i32; LANES]; R],
) {
    for (sums, x) in sums.iter_mut().zip(x) {
        for (sum, w) in sums.iter_mut().zip(w.as_chunks::<4>().0) {
            for (&w, &x) in w.iter().zip(&x[4 * quad..][..4]) {
                *sum += i32::from(w) * x.into();
            }
        }
    }
}
