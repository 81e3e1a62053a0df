//! Lanes as one 512-bit register.

use std::arch::x86_64::*;

use half::bf16;

use super::interleave::x86;
use super::{EIGHT, Isa, Kernel, LANES, QUAD, bf16_bits};

/// The proof that this machine has AVX-512 F, BW, DQ and VL, and with `DOT` also BF16 and VNNI: only [`launch`] and
/// [`launch_dot`] make one.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const DOT: bool>(());

const NO_DOTS: &str = "invariant: kernels that take dot products say so in Kernel::DOTS";

/// Runs a kernel compiled for this tier without dot products.
///
/// # Safety
/// The machine has the features named below.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(crate) unsafe fn launch<K: Kernel>(kernel: K) -> K::Out {
    assert!(!K::DOTS, "{NO_DOTS}");
    kernel.run(Avx512::<false>(()))
}

/// Runs a kernel compiled for this tier with dot products.
///
/// # Safety
/// The machine has the features named below.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni,avx2,fma,f16c")]
pub(crate) unsafe fn launch_dot<K: Kernel>(kernel: K) -> K::Out {
    kernel.run(Avx512::<true>(()))
}

// SAFETY of every block below: `self` exists only inside `launch` and `launch_dot`, whose caller vouched for the
// features; the pointers come from references to whole arrays.
impl<const DOT: bool> Isa for Avx512<DOT> {
    type V = __m512;
    const ROW_TILES: &'static [usize] = &[16, 8, 4, 1];
    const PAIR_WORDS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        // SAFETY: see above; a bf16 is 16 bits.
        unsafe {
            let halves = _mm256_loadu_si256(x.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }
    }

    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; LANES]) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }

    #[inline(always)]
    fn where_lt(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
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
    fn load_f16(self, x: &[u16; LANES]) -> Self::V {
        // SAFETY: see above; an f16 is 16 bits.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn round_pairs(self, x: &[f32; LANES]) -> [u32; LANES] {
        let (bits, mut words) = (x.map(bf16_bits), [0; LANES]);
        for (word, pair) in words.iter_mut().zip(bits.as_chunks::<2>().0) {
            *word = (pair[0] >> 16) | pair[1];
        }
        words
    }

    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        // SAFETY: see above; sixteen pairs are 64 bytes.
        unsafe {
            let w = _mm512_loadu_si512(w.as_ptr().cast());
            let second = _mm512_and_si512(w, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm512_castsi512_ps(second), _mm512_castsi512_ps(_mm512_slli_epi32::<16>(w))]
        }
    }

    #[inline(always)]
    fn fma_pairs<const R: usize>(self, x: &[u32], w: &[[bf16; 2]; LANES], mut sums: [Self::V; R]) -> [Self::V; R] {
        assert!(DOT, "{NO_DOTS}");
        let Some(x) = x.first_chunk::<R>() else { return sums };
        // SAFETY: see above; sixteen pairs are 64 bytes.
        let w = unsafe { _mm512_loadu_si512(w.as_ptr().cast()) };
        for (sum, &x) in sums.iter_mut().zip(x) {
            // SAFETY: see above; both types are 64 bytes in which every bit pattern is a value.
            *sum = unsafe {
                let w = std::mem::transmute::<__m512i, __m512bh>(w);
                let x = std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(x.cast_signed()));
                _mm512_dpbf16_ps(*sum, w, x)
            };
        }
        sums
    }

    #[inline(always)]
    fn dot_bytes<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R], totals: &[f32; R]) -> [Self::V; R] {
        assert!(DOT, "{NO_DOTS}");
        // SAFETY: see above; a quad is one register.
        unsafe {
            // Weights are offset by 128 to become unsigned; the sums start at what that adds.
            let (flip, mut sums) = (_mm512_set1_epi8(-128), [_mm512_setzero_si512(); R]);
            for (sum, total) in sums.iter_mut().zip(totals) {
                *sum = _mm512_cvtps_epi32(self.splat(-128.0 * total));
            }
            for (quad, w) in w.iter().enumerate() {
                let w = _mm512_xor_si512(_mm512_loadu_si512(w.as_ptr().cast()), flip);
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = _mm512_dpbusd_epi32(*sum, w, four(x, quad));
                }
            }
            floats(self, sums)
        }
    }

    #[inline(always)]
    fn dot_lifted<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R]) -> [Self::V; R] {
        assert!(DOT, "{NO_DOTS}");
        // SAFETY: see above; a quad is one register.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); R];
            for (quad, w) in w.iter().enumerate() {
                let w = _mm512_loadu_si512(w.as_ptr().cast());
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = _mm512_dpbusd_epi32(*sum, four(x, quad), w);
                }
            }
            floats(self, sums)
        }
    }

    #[inline(always)]
    fn dot_halves<const R: usize>(self, w: &[[u8; QUAD]; 4], x: &[[i8; 32]; R]) -> [Self::V; R] {
        assert!(DOT, "{NO_DOTS}");
        // SAFETY: as in `dot_bytes`.
        unsafe {
            let (low, mut sums) = (_mm512_set1_epi8(15), [_mm512_setzero_si512(); R]);
            for (quad, w) in w.iter().enumerate() {
                let w = _mm512_loadu_si512(w.as_ptr().cast());
                let first = _mm512_and_si512(w, low);
                let second = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low);
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = _mm512_dpbusd_epi32(*sum, first, four(x, quad));
                    *sum = _mm512_dpbusd_epi32(*sum, second, four(x, quad + 4));
                }
            }
            floats(self, sums)
        }
    }
}

/// Four bytes of a row, sixteen times.
///
/// # Safety
/// The machine has AVX-512 F.
#[inline(always)]
unsafe fn four(x: &[i8; 32], quad: usize) -> __m512i {
    let bytes = x.as_chunks::<4>().0[quad].map(i8::cast_unsigned);
    // SAFETY: by contract.
    unsafe { _mm512_set1_epi32(i32::from_le_bytes(bytes)) }
}

#[inline(always)]
fn floats<const DOT: bool, const R: usize>(isa: Avx512<DOT>, sums: [__m512i; R]) -> [__m512; R] {
    let mut out = [isa.splat(0.0); R];
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: see above.
        *out = unsafe { _mm512_cvtepi32_ps(sum) };
    }
    out
}
