//! Tables by number: the keys are counted up by ourselves, so a multiplication scatters them well enough.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers of our own.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A set of numbers of our own.
pub(crate) type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Hashes one number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

// --- impl IdHasher ---

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_scatter_over_both_ends_of_the_hash() {
        let hash = |number: u64| {
            let mut hasher = IdHasher::default();
            hasher.write_u64(number);
            hasher.finish()
        };
        let low: HashSet<u64> = (0..64).map(|n| hash(n) & 0xff).collect();
        let high: HashSet<u64> = (0..64).map(|n| hash(n) >> 57).collect();
        assert!(low.len() > 40 && high.len() > 32, "{} {}", low.len(), high.len());
    }
}
