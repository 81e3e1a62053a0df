//! How long to wait before a restart: doubling, capped, with jitter that a seed decides.

use std::time::Duration;

/// The pause before a restart. It doubles with every failure in a row and starts over once a child has run steadily.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The pause before the first restart; zero restarts at once.
    pub first: Duration,
    /// The longest pause.
    pub cap: Duration,
    /// The share of a pause, from 0 to 1, that chance may take away, so that children that died together do not return together.
    pub jitter: f64,
    /// A child that ran at least this long is trusted again: its next failure counts as the first.
    pub steady_after: Duration,
}

// --- impl Backoff ---

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            first: Duration::from_millis(50),
            cap: Duration::from_secs(5),
            jitter: 0.2,
            steady_after: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// Returns the pause after `failures` earlier failures in a row; the same `draw` always gives the same jitter.
    pub fn delay(&self, failures: u32, draw: u64) -> Duration {
        let doubled = 2u32.checked_pow(failures).and_then(|factor| self.first.checked_mul(factor)).unwrap_or(self.cap);
        let whole = doubled.min(self.cap);
        whole.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * unit(draw))
    }
}

/// Returns a number in `[0, 1)` that depends on `draw` alone (one round of splitmix64).
fn unit(draw: u64) -> f64 {
    let mut z = draw.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            cap: Duration::from_millis(1500),
            jitter: 0.0,
            ..Backoff::default()
        };
        let pauses: Vec<u128> = (0..7).map(|failures| backoff.delay(failures, 1).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1500, 1500, 1500]);
        assert_eq!(backoff.delay(u32::MAX, 1), backoff.cap);
    }

    #[test]
    fn jitter_only_shortens_and_repeats_with_its_draw() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            cap: Duration::from_secs(1),
            jitter: 0.5,
            ..Backoff::default()
        };
        let pauses: Vec<Duration> = (0..200).map(|draw| backoff.delay(1, draw)).collect();
        assert!(pauses.iter().all(|p| (Duration::from_millis(100)..=Duration::from_millis(200)).contains(p)));
        assert!(pauses.iter().collect::<std::collections::BTreeSet<_>>().len() > 150, "chance spreads the pauses");
        assert_eq!(pauses, (0..200).map(|draw| backoff.delay(1, draw)).collect::<Vec<_>>());
    }
}
