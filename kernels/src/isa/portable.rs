//! Lanes as a plain array, without FMA: what every machine can do, and what the compiler makes of it.

use std::array::from_fn;

use half::bf16;

use super::{Isa, LANES};

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
    const TILE_ROWS: usize = 2;
    const WIDE: bool = false;

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
}
