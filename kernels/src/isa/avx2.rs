//! Lanes as two 256-bit registers.

use std::arch::x86_64::*;

use half::bf16;

use super::interleave::x86;
use super::{EIGHT, Isa, Kernel, LANES, QUAD, bf16_bits};

/// The proof that this machine has AVX2, FMA and F16C: only [`launch`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// The lower and the upper eight lanes.
type Pair = [__m256; 2];

/// Runs a kernel compiled for this tier.
///
/// # Safety
/// The machine has the features named below.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx2(()))
}

// SAFETY of every block below: `self` exists only inside `launch`, whose caller vouched for the features; the
// pointers come from references to whole arrays.
impl Isa for Avx2 {
    type V = Pair;
    type Pairs = [__m256i; 2];
    const ROW_TILES: &'static [usize] = &[6, 4, 2, 1];
    const PAIR_WORDS: usize = 2;

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

    #[inline(always)]
    fn prefetch_ahead<T>(self, x: &T, bytes: usize) {
        // SAFETY: see above; a prefetch reads nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(x).wrapping_byte_add(bytes).cast()) }
    }

    #[inline(always)]
    fn interleave_eight<const R: usize>(self, rows: [&[f32; EIGHT]; R], out: &mut [[f32; R]; EIGHT]) {
        // SAFETY: see above.
        unsafe { x86::interleave_eight(rows, out) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Pair {
        // SAFETY: see above; an f16 is 16 bits.
        unsafe {
            let halves: *const __m128i = x.as_ptr().cast();
            [_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves.add(1)))]
        }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Pair {
        // SAFETY: see above.
        unsafe {
            let bytes = _mm_loadu_si128(x.as_ptr().cast());
            let (low, high) = (_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(bytes)));
            [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)]
        }
    }

    #[inline(always)]
    fn load_pairs(self, x: &[[bf16; 2]; LANES]) -> Self::Pairs {
        // SAFETY: see above; sixteen pairs are 64 bytes.
        unsafe {
            let pairs: *const __m256i = x.as_ptr().cast();
            [_mm256_loadu_si256(pairs), _mm256_loadu_si256(pairs.add(1))]
        }
    }

    #[inline(always)]
    fn round_pairs(self, x: &[f32; LANES]) -> [u32; LANES] {
        x.map(bf16_bits)
    }

    #[inline(always)]
    fn fma_pairs<const R: usize>(self, x: &[u32], w: Self::Pairs, mut sums: [Pair; R]) -> [Pair; R] {
        let Some(x) = x.as_chunks::<2>().0.first_chunk::<R>() else { return sums };
        // One half of the weights at a time, or there are not registers enough.
        // SAFETY: see above.
        let half = unsafe { [odd(w[0]), odd(w[1])] };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = self.fma(self.splat(f32::from_bits(x[1])), half, *sum);
        }
        // SAFETY: see above.
        let half = unsafe { [even(w[0]), even(w[1])] };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = self.fma(self.splat(f32::from_bits(x[0])), half, *sum);
        }
        sums
    }

    #[inline(always)]
    fn dot_bytes<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R], _: &[f32; R]) -> [Pair; R] {
        // SAFETY: see above; a quad is two registers, four bytes of a row are read at a multiple of four below 32.
        unsafe {
            let (ones, mut out) = (_mm256_set1_epi16(1), [self.splat(0.0); R]);
            // Eight outputs at a time: sums of all sixteen would not fit the registers.
            for half in 0..2 {
                let (x, mut sums) = (again(x), [_mm256_setzero_si256(); R]);
                for (quad, w) in w.iter().enumerate() {
                    let w = _mm256_loadu_si256(w.as_ptr().cast::<__m256i>().add(half));
                    let size = _mm256_abs_epi8(w);
                    for (sum, x) in sums.iter_mut().zip(x) {
                        // Sizes times x with the weight's sign: two such products fit 16 bits.
                        let pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(x, quad), w));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    out[half] = _mm256_cvtepi32_ps(sum);
                }
            }
            out
        }
    }

    #[inline(always)]
    fn dot_halves<const R: usize>(self, w: &[[u8; QUAD]; 4], x: &[[i8; 32]; R]) -> [Pair; R] {
        // SAFETY: as in `dot_bytes`.
        unsafe {
            let (low, ones, mut out) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1), [self.splat(0.0); R]);
            // Eight outputs at a time: sums of all sixteen would not fit the registers.
            for half in 0..2 {
                let (x, mut sums) = (again(x), [_mm256_setzero_si256(); R]);
                for (quad, w) in w.iter().enumerate() {
                    let w = _mm256_loadu_si256(w.as_ptr().cast::<__m256i>().add(half));
                    let first = _mm256_and_si256(w, low);
                    let second = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low);
                    for (sum, x) in sums.iter_mut().zip(x) {
                        // Eight sums of two products of 15 * 127 fit 16 bits.
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(first, four(x, quad)));
                        *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(second, four(x, quad + 4)));
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    out[half] = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum, ones));
                }
            }
            out
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(halves: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn power(n: __m256) -> __m256 {
    let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
}

/// The second of each pair, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn odd(pairs: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32 as i32)))
}

/// The first of each pair, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn even(pairs: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs))
}

/// Four bytes of a row, eight times.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn four(x: &[i8; 32], quad: usize) -> __m256i {
    let bytes = x.as_chunks::<4>().0[quad].map(i8::cast_unsigned);
    _mm256_set1_epi32(i32::from_le_bytes(bytes))
}

/// The same rows, which the compiler takes for others: it would keep what it read of them the first time, and has not the
/// registers.
#[inline(always)]
fn again<T>(x: &T) -> &T {
    std::hint::black_box(x)
}
