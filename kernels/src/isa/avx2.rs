//! Lanes as two 256-bit registers.

use std::arch::{asm, x86_64::*};

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
    fn round_pairs(self, x: &[f32; LANES]) -> [u32; LANES] {
        x.map(bf16_bits)
    }

    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Pair; 2] {
        // SAFETY: see above; sixteen pairs are 64 bytes.
        unsafe {
            let w: *const __m256i = w.as_ptr().cast();
            let (w, mask) =
                ([_mm256_loadu_si256(w), _mm256_loadu_si256(w.add(1))], _mm256_loadu_si256(ODD.as_ptr().cast()));
            [[odd(w[0], mask), odd(w[1], mask)], [even(w[0]), even(w[1])]]
        }
    }

    #[inline(always)]
    fn fma_pairs<const R: usize>(self, x: &[u32], w: &[[bf16; 2]; LANES], mut sums: [Pair; R]) -> [Pair; R] {
        let Some(x) = x.as_chunks::<2>().0.first_chunk::<R>() else { return sums };
        // One half of the weights at a time, and read again for the other, or there are not registers enough.
        // SAFETY: see above; sixteen pairs are 64 bytes.
        let half = unsafe {
            let (mask, w): (*const __m256i, *const __m256i) = (again(&ODD).as_ptr().cast(), w.as_ptr().cast());
            let mask = _mm256_loadu_si256(mask);
            [odd(_mm256_loadu_si256(w), mask), odd(_mm256_loadu_si256(w.add(1)), mask)]
        };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = self.fma(self.splat(f32::from_bits(x[1])), half, *sum);
        }
        // SAFETY: as above.
        let half = unsafe {
            let w: *const __m256i = again(w).as_ptr().cast();
            [even(_mm256_loadu_si256(w)), even(_mm256_loadu_si256(w.add(1)))]
        };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = self.fma(self.splat(f32::from_bits(x[0])), half, *sum);
        }
        sums
    }

    #[inline(always)]
    fn bytes(self, halves: [Pair; 2]) -> [i8; 32] {
        let mut out = [0; 32];
        // SAFETY: see above; the array is 32 bytes.
        unsafe {
            let [[a, b], [c, d]] = halves;
            let first = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            let second = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
            // Packing keeps to halves of registers: fours of bytes lie as below.
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), bytes);
        }
        out
    }

    #[inline(always)]
    fn sum(self, v: Pair) -> f32 {
        // SAFETY: see above.
        unsafe {
            let eight = _mm256_add_ps(v[0], v[1]);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn greatest(self, v: Pair) -> f32 {
        // SAFETY: see above. What is no number in the first operand is left out.
        unsafe {
            let least = _mm256_set1_ps(f32::NEG_INFINITY);
            let eight = _mm256_max_ps(v[0], _mm256_max_ps(v[1], least));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn dot_lifted<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R]) -> [Pair; R] {
        let mut sums = self.zeros::<R, 2>();
        for (quad, w) in w.iter().enumerate() {
            // SAFETY: see above; a quad is two registers.
            unsafe {
                let (w, ones) = (self.eights::<2>(w, 0), _mm256_set1_epi16(1));
                for (sums, x) in sums.iter_mut().zip(x) {
                    let x = four(x, quad);
                    for (sum, &w) in sums.iter_mut().zip(&w) {
                        let products = _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), ones);
                        *sum = in_turn(_mm256_add_epi32(*sum, products));
                    }
                }
            }
        }
        self.floats([&sums])
    }

    #[inline(always)]
    fn dot_bytes<const R: usize>(self, w: &[[u8; QUAD]; 8], x: &[[i8; 32]; R], _: &[f32; R]) -> [Pair; R] {
        if R > 4 {
            return self.floats([&self.signed::<R, 1>(w, x, 0), &self.signed(w, x, 1)]);
        }
        self.floats([&self.signed::<R, 2>(w, x, 0)])
    }

    #[inline(always)]
    fn dot_halves<const R: usize>(self, w: &[[u8; QUAD]; 4], x: &[[i8; 32]; R]) -> [Pair; R] {
        if R > 4 {
            return self.floats([&self.nibbles::<R, 1>(w, x, 0), &self.nibbles(w, x, 1)]);
        }
        self.floats([&self.nibbles::<R, 2>(w, x, 0)])
    }
}

/// Sums of `R` rows with eight outputs, or sixteen.
type Sums<const R: usize, const H: usize> = [[__m256i; H]; R];

// --- impl Avx2 ---

// SAFETY of every block below: as above.
impl Avx2 {
    #[inline(always)]
    fn zeros<const R: usize, const H: usize>(self) -> Sums<R, H> {
        // SAFETY: see above.
        [[unsafe { _mm256_setzero_si256() }; H]; R]
    }

    /// A quad's weights of all outputs, or of one eight.
    #[inline(always)]
    fn eights<const H: usize>(self, w: &[u8; QUAD], first: usize) -> [__m256i; H] {
        let mut eights = [self.zeros::<1, 1>()[0][0]; H];
        for (eight, w) in eights.iter_mut().zip(&w.as_chunks::<32>().0[first..]) {
            // SAFETY: see above.
            *eight = unsafe { _mm256_loadu_si256(w.as_ptr().cast()) };
        }
        eights
    }

    /// Sums of signed bytes. Those of many rows with all sixteen outputs would not fit the registers.
    #[inline(always)]
    fn signed<const R: usize, const H: usize>(
        self,
        w: &[[u8; QUAD]; 8],
        x: &[[i8; 32]; R],
        first: usize,
    ) -> Sums<R, H> {
        let mut sums = self.zeros();
        for (quad, w) in w.iter().enumerate() {
            for (half, w) in self.eights::<H>(w, first).into_iter().enumerate() {
                // SAFETY: see above.
                unsafe {
                    let (size, ones) = (_mm256_abs_epi8(w), _mm256_set1_epi16(1));
                    for (sums, x) in sums.iter_mut().zip(x) {
                        // Sizes times x with the weight's sign: two such products fit 16 bits.
                        let pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(x, quad), w));
                        sums[half] = in_turn(_mm256_add_epi32(sums[half], _mm256_madd_epi16(pairs, ones)));
                    }
                }
            }
        }
        sums
    }

    /// Sums of half bytes.
    #[inline(always)]
    fn nibbles<const R: usize, const H: usize>(
        self,
        w: &[[u8; QUAD]; 4],
        x: &[[i8; 32]; R],
        first: usize,
    ) -> Sums<R, H> {
        let mut sums = self.zeros();
        // SAFETY: see above.
        unsafe {
            let (low, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
            for (quad, w) in w.iter().enumerate() {
                let mut w = self.eights::<H>(w, first);
                for quad in [quad, quad + 4] {
                    let mut part = w;
                    for (part, w) in part.iter_mut().zip(&mut w) {
                        *part = _mm256_and_si256(*w, low);
                        *w = _mm256_srli_epi16::<4>(*w);
                    }
                    for (sums, x) in sums.iter_mut().zip(x) {
                        let x = four(x, quad);
                        for (sum, &part) in sums.iter_mut().zip(&part) {
                            // Eight sums of two products of 15 * 127 fit 16 bits.
                            *sum = in_turn(_mm256_add_epi16(*sum, _mm256_maddubs_epi16(part, x)));
                        }
                    }
                }
            }
            for sum in sums.as_flattened_mut() {
                *sum = _mm256_madd_epi16(*sum, ones);
            }
        }
        sums
    }

    /// The sums as floats, of both eights at once or one after the other.
    #[inline(always)]
    fn floats<const R: usize, const H: usize, const N: usize>(self, parts: [&Sums<R, H>; N]) -> [Pair; R] {
        const { assert!(H * N == 2) };
        let mut out = [self.splat(0.0); R];
        for (part, sums) in parts.into_iter().enumerate() {
            for (out, sums) in out.iter_mut().zip(sums) {
                for (half, &sum) in sums.iter().enumerate() {
                    // SAFETY: see above.
                    out[part * H + half] = unsafe { _mm256_cvtepi32_ps(sum) };
                }
            }
        }
        out
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
    /// Beside this, floats are a step of one apart: the sum's lowest bits are n + 127, the biased exponent, without a
    /// conversion.
    const BIASED: f32 = 12_582_912.0 + 127.0;
    let biased = _mm256_castps_si256(_mm256_add_ps(n, _mm256_set1_ps(BIASED)));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
}

/// Masks the second of each pair. It lies in memory: made from a constant, it would be a blend that takes a register more.
static ODD: [u32; 8] = [0xffff_0000; 8];

/// The second of each pair, widened.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn odd(pairs: __m256i, mask: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_and_si256(pairs, mask))
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

/// The same weights, which the compiler takes for others: it would keep what it read of them the first time, and has not the
/// registers.
#[inline(always)]
fn again<T>(x: &T) -> &T {
    std::hint::black_box(x)
}

/// The same sum, which the compiler takes for another, made here and now: it would add in trees, row by row, and has not the
/// registers for the weights of all quads.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn in_turn(mut sum: __m256i) -> __m256i {
    // SAFETY: there is no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags)) };
    sum
}
