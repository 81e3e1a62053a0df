//! Lanes as two 256-bit registers.

use std::arch::x86_64::*;

use half::bf16;

use super::{Isa, Kernel, LANES};

/// The proof that this machine has AVX2 and FMA: only [`launch`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// The lower and the upper eight lanes.
type Pair = [__m256; 2];

/// Runs a kernel compiled for this tier.
///
/// # Safety
/// The machine has the features named below.
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2(()))
}

// SAFETY of every block below: `self` exists only inside `launch`, whose caller vouched for the features; the
// pointers come from references to whole arrays.
impl Isa for Avx2 {
    type V = Pair;
    const TILE_ROWS: usize = 6;
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Pair {
        // SAFETY: see above; a bf16 is 16 bits.
        unsafe {
            let halves: *const __m128i = x.as_ptr().cast();
            [widen(_mm_loadu_si128(halves)), widen(_mm_loadu_si128(halves.add(1)))]
        }
    }

    #[inline(always)]
    fn store(self, v: Pair, out: &mut [f32; LANES]) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }

    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn min(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn round(self, v: Pair) -> Pair {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: see above.
        unsafe { [_mm256_round_ps::<NEAREST>(v[0]), _mm256_round_ps::<NEAREST>(v[1])] }
    }

    #[inline(always)]
    fn pow2(self, n: Pair) -> Pair {
        // SAFETY: see above.
        unsafe { [power(n[0]), power(n[1])] }
    }

    #[inline(always)]
    fn where_lt(self, a: Pair, b: Pair, yes: Pair, no: Pair) -> Pair {
        // SAFETY: see above.
        unsafe {
            let (low, high) = (_mm256_cmp_ps::<_CMP_LT_OQ>(a[0], b[0]), _mm256_cmp_ps::<_CMP_LT_OQ>(a[1], b[1]));
            [_mm256_blendv_ps(no[0], yes[0], low), _mm256_blendv_ps(no[1], yes[1], high)]
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        // SAFETY: see above; a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(x).cast()) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn widen(halves: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn power(n: __m256) -> __m256 {
    let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
}
