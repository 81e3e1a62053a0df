//! Random numbers that a seed and a place name: whoever asks again gets the same.

/// Draws numbers for one purpose of a story.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lots {
    seed: u64,
}

// --- impl Lots ---

impl Lots {
    /// Returns the draws of a seed for a purpose; different purposes have nothing to do with each other.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let named = purpose.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        Self { seed: mix(named) }
    }

    /// Returns the draw at a place.
    pub(crate) fn at(self, place: u64) -> u64 {
        mix(self.seed ^ mix(place))
    }

    /// Returns a draw below `bound`; 0 where there is nothing below it.
    pub(crate) fn below(self, place: u64, bound: u64) -> u64 {
        self.at(place).checked_rem(bound).unwrap_or(0)
    }

    /// Returns a draw from 0 to 1.
    pub(crate) fn share(self, place: u64) -> f64 {
        (self.at(place) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The finaliser of splitmix64.
fn mix(value: u64) -> u64 {
    let mut hash = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_named_by_seed_purpose_and_place_and_spread_evenly() {
        let lots = Lots::new(1, "drops");
        assert_eq!(lots.at(7), Lots::new(1, "drops").at(7));
        assert_ne!(lots.at(7), Lots::new(2, "drops").at(7));
        assert_ne!(lots.at(7), Lots::new(1, "strikes").at(7));
        let mean = (0..1000).map(|place| lots.share(place)).sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        assert!((0..1000).all(|place| lots.below(place, 10) < 10));
    }
}
