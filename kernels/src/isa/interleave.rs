//! Rows laid out as columns: what a kernel multiplies with several rows at once then lies in one run.

use super::Isa;

/// Columns that are laid out in one go.
pub(crate) const EIGHT: usize = 8;

/// Lays rows of one length out as columns, `[length][rows]`.
#[inline(always)]
pub(crate) fn interleave<I: Isa>(isa: I, rows: &[&[f32]], out: &mut [f32]) {
    match rows.len() {
        16 => these::<I, 16>(isa, rows, out),
        8 => these::<I, 8>(isa, rows, out),
        6 => these::<I, 6>(isa, rows, out),
        4 => these::<I, 4>(isa, rows, out),
        2 => these::<I, 2>(isa, rows, out),
        1 => out.copy_from_slice(rows[0]),
        count => {
            for (r, row) in rows.iter().enumerate() {
                for (out, &x) in out.get_mut(r..).unwrap_or_default().iter_mut().step_by(count).zip(*row) {
                    *out = x;
                }
            }
        }
    }
}

#[inline(always)]
fn these<I: Isa, const R: usize>(isa: I, rows: &[&[f32]], out: &mut [f32]) {
    let (whole, rest) = out.as_chunks_mut::<R>().0.as_chunks_mut::<EIGHT>();
    let mut parts: [&[[f32; EIGHT]]; R] = [&[]; R];
    for (part, row) in parts.iter_mut().zip(rows) {
        *part = &row.as_chunks().0[..whole.len()];
    }
    let done = whole.len() * EIGHT;
    for (k, out) in whole.iter_mut().enumerate() {
        let mut eight = [&[0.0; EIGHT]; R];
        for (eight, part) in eight.iter_mut().zip(&parts) {
            *eight = &part[k];
        }
        isa.interleave_eight(eight, out);
    }
    for (k, out) in rest.iter_mut().enumerate() {
        for (out, row) in out.iter_mut().zip(rows) {
            *out = row[done + k];
        }
    }
}

/// What [`Isa::interleave_eight`] does, number by number.
#[inline(always)]
pub(super) fn one_by_one<const R: usize>(rows: [&[f32; EIGHT]; R], out: &mut [[f32; R]; EIGHT]) {
    for (k, out) in out.iter_mut().enumerate() {
        for (out, row) in out.iter_mut().zip(rows) {
            *out = row[k];
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    //! In registers of 256 bits, for the numbers of rows that are met most.

    use std::arch::x86_64::*;

    use super::{EIGHT, one_by_one};

    /// As [`super::one_by_one`].
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::isa) fn interleave_eight<const R: usize>(rows: [&[f32; EIGHT]; R], out: &mut [[f32; R]; EIGHT]) {
        if let (Some(rows), Some(out)) = (rows.first_chunk(), out.as_flattened_mut().first_chunk_mut())
            && R == 6
        {
            return six(rows, out);
        }
        if !R.is_multiple_of(EIGHT) {
            return one_by_one(rows, out);
        }
        for (i, rows) in rows.as_chunks::<EIGHT>().0.iter().enumerate() {
            square(rows, out, i * EIGHT);
        }
    }

    /// Pairs of rows are one number of 64 bits, of which a column has three.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn six(rows: &[&[f32; EIGHT]; 6], out: &mut [f32; 6 * EIGHT]) {
        let (a, b, c) = (load(rows[0]), load(rows[1]), load(rows[2]));
        let (d, e, f) = (load(rows[3]), load(rows[4]), load(rows[5]));
        let (ab, ab_next) = (pairs_low(a, b), pairs_high(a, b));
        let (cd, cd_next) = (pairs_low(c, d), pairs_high(c, d));
        let (ef, ef_next) = (pairs_low(e, f), pairs_high(e, f));
        let [first, second, third, fourth, fifth, sixth] = out.as_chunks_mut::<EIGHT>().0 else { return };
        halves(_mm256_unpacklo_pd(ab, cd), _mm256_shuffle_pd::<0b1010>(ef, ab), first, fourth);
        halves(_mm256_unpackhi_pd(cd, ef), _mm256_unpacklo_pd(ab_next, cd_next), second, fifth);
        let last = _mm256_unpackhi_pd(cd_next, ef_next);
        halves(_mm256_shuffle_pd::<0b1010>(ef_next, ab_next), last, third, sixth);
    }

    /// Stores the first halves of both together, and the second ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(x: __m256d, y: __m256d, first: &mut [f32; EIGHT], second: &mut [f32; EIGHT]) {
        // SAFETY: both places are eight numbers long.
        unsafe {
            _mm256_storeu_pd(first.as_mut_ptr().cast(), _mm256_permute2f128_pd::<0x20>(x, y));
            _mm256_storeu_pd(second.as_mut_ptr().cast(), _mm256_permute2f128_pd::<0x31>(x, y));
        }
    }

    /// Turns eight rows into a part of eight columns, from place `at` of each.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn square<const R: usize>(rows: &[&[f32; EIGHT]; EIGHT], out: &mut [[f32; R]; EIGHT], at: usize) {
        let (a, b, c, d) = (load(rows[0]), load(rows[1]), load(rows[2]), load(rows[3]));
        let (e, f, g, h) = (load(rows[4]), load(rows[5]), load(rows[6]), load(rows[7]));
        let (ab, cd, ef, gh) = (pairs_low(a, b), pairs_low(c, d), pairs_low(e, f), pairs_low(g, h));
        let (ab_next, cd_next) = (pairs_high(a, b), pairs_high(c, d));
        let (ef_next, gh_next) = (pairs_high(e, f), pairs_high(g, h));
        let [first, second, third, fourth, fifth, sixth, seventh, eighth] =
            out.each_mut().map(|column| column[at..].first_chunk_mut());
        let (Some(first), Some(second), Some(third), Some(fourth)) = (first, second, third, fourth) else { return };
        let (Some(fifth), Some(sixth), Some(seventh), Some(eighth)) = (fifth, sixth, seventh, eighth) else { return };
        halves(_mm256_unpacklo_pd(ab, cd), _mm256_unpacklo_pd(ef, gh), first, fifth);
        halves(_mm256_unpackhi_pd(ab, cd), _mm256_unpackhi_pd(ef, gh), second, sixth);
        halves(_mm256_unpacklo_pd(ab_next, cd_next), _mm256_unpacklo_pd(ef_next, gh_next), third, seventh);
        halves(_mm256_unpackhi_pd(ab_next, cd_next), _mm256_unpackhi_pd(ef_next, gh_next), fourth, eighth);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs_low(a: __m256, b: __m256) -> __m256d {
        _mm256_castps_pd(_mm256_unpacklo_ps(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs_high(a: __m256, b: __m256) -> __m256d {
        _mm256_castps_pd(_mm256_unpackhi_ps(a, b))
    }

    #[inline(always)]
    fn load(x: &[f32; EIGHT]) -> __m256 {
        // SAFETY: only functions with the feature call this; the place is eight numbers long.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{noise, on_every_tier};
    use crate::isa::Kernel;

    struct Laid<'a>(&'a [&'a [f32]], &'a mut [f32]);

    impl Kernel for Laid<'_> {
        type Out = ();

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) {
            interleave(isa, self.0, self.1);
        }
    }

    #[test]
    fn rows_become_columns_whatever_their_number_and_length() {
        for count in [1, 2, 3, 4, 6, 8, 16] {
            for len in [0, 1, 7, 8, 24, 37] {
                let numbers = noise(1, count * len + 1);
                let rows: Vec<&[f32]> = (0..count).map(|r| &numbers[r * len..][..len]).collect();
                on_every_tier(|cx| {
                    let mut out = vec![0.0; count * len];
                    cx.cpu_for("interleave").unwrap().launch(Laid(&rows, &mut out));
                    for (i, x) in out.iter().enumerate() {
                        assert_eq!(*x, rows[i % count][i / count]);
                    }
                });
            }
        }
    }
}
