//! Counter-based random numbers: a pure function of a draw's name and an index, so that whoever asks again gets the
//! same numbers, in any order.

/// Scrambles 64 bits so that every input bit moves about half of the output bits (a bijection).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Returns the `index`-th number of a draw, uniform over 64 bits.
pub(crate) fn bits(draw: u64, index: u64) -> u64 {
    mix(mix(draw ^ 0x9e37_79b9_7f4a_7c15).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Returns the `index`-th number of a draw, uniform in `0..1`.
pub(crate) fn unit(draw: u64, index: u64) -> f64 {
    (bits(draw, index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_the_unit_interval_evenly() {
        let mut buckets = [0u32; 64];
        for draw in 0..64u64 {
            for index in 0..1000 {
                buckets[(unit(draw, index) * 64.0) as usize] += 1;
            }
        }
        // 1000 expected per bucket, standard deviation 31: chi-squared of 63 degrees stays under 120.
        let chi: f64 = buckets.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 120.0, "{chi}");
    }

    #[test]
    fn neighbouring_draws_share_nothing() {
        let flipped: u32 = (0..1000u64).map(|draw| (bits(draw, 0) ^ bits(draw + 1, 0)).count_ones()).sum();
        assert!((30_000..34_000).contains(&flipped), "{flipped}");
    }
}
