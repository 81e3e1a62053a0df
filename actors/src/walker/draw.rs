//! The name of a step's random numbers. Pure.

/// Returns a number that is the same whenever the same step of the same request runs, and unlike all others.
pub(crate) fn draw(seed: u64, partition: u16, walk: u16, step: usize, iteration: &[u32]) -> u64 {
    let place = u64::from(partition) << 48 | u64::from(walk) << 32 | (step as u64 & 0xffff_ffff);
    let start = mix(mix(seed) ^ place);
    iteration.iter().fold(start, |hash, at| mix(hash ^ (u64::from(*at) + 1)))
}

/// Scatters the bits of a number: the finaliser of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_all_that_names_a_step() {
        let names: [(u64, u16, u16, usize, &[u32]); 7] = [
            (1, 0, 0, 0, &[0]),
            (2, 0, 0, 0, &[0]),
            (1, 1, 0, 0, &[0]),
            (1, 0, 1, 0, &[0]),
            (1, 0, 0, 1, &[0]),
            (1, 0, 0, 0, &[1]),
            (1, 0, 0, 0, &[0, 0]),
        ];
        let draws: std::collections::BTreeSet<u64> =
            names.iter().map(|(s, p, w, t, i)| draw(*s, *p, *w, *t, i)).collect();
        assert_eq!(draws.len(), names.len());
        assert_eq!(draw(1, 0, 0, 0, &[3]), draw(1, 0, 0, 0, &[3]));
    }
}
