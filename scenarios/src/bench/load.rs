//! When requests are sent.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lots::Lots;

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many at one moment, then the next as many when all have ended: work that nobody waits for.
    Waves(usize),
    /// So many clients, each of which asks again as soon as it was answered.
    Closed(usize),
    /// So many requests a second at random moments, however long answers take: strangers who do not wait for each other.
    Open(f64),
}

// --- impl Load ---

impl Load {
    /// Returns the load as a row's key and value.
    pub fn label(self) -> (&'static str, Value) {
        match self {
            Self::Waves(at_once) => ("wave", json!(at_once)),
            Self::Closed(clients) => ("concurrency", json!(clients)),
            Self::Open(rate) => ("rate", json!(rate)),
        }
    }
}

/// Returns the waves that so many requests come in.
pub(super) fn waves(requests: usize, at_once: usize) -> impl Iterator<Item = Range<usize>> {
    let at_once = at_once.max(1);
    (0..requests).step_by(at_once).map(move |first| first..(first + at_once).min(requests))
}

/// Returns when each of so many requests comes, after the first moment: a Poisson process, the same for the same seed.
pub(super) fn arrivals(requests: usize, rate: f64, seed: u64) -> Vec<Duration> {
    let lots = Lots::new(seed, "arrivals");
    let mut at = 0.0;
    let mut next = |place: usize| {
        // A share is below 1, so its complement has a logarithm.
        at -= (1.0 - lots.share(place as u64)).ln() / rate;
        Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX)
    };
    (0..requests).map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_hold_every_request_once_and_the_last_may_be_small() {
        assert_eq!(waves(7, 3).collect::<Vec<_>>(), [0..3, 3..6, 6..7]);
        assert_eq!(waves(2, 0).collect::<Vec<_>>(), [0..1, 1..2]);
        assert_eq!(waves(0, 4).count(), 0);
    }

    #[test]
    fn arrivals_are_those_of_their_seed_and_as_frequent_as_wanted() {
        let times = arrivals(4000, 20.0, 7);
        assert_eq!(times, arrivals(4000, 20.0, 7));
        assert_ne!(times, arrivals(4000, 20.0, 8));
        assert!(times.is_sorted());
        let took = times[3999].as_secs_f64();
        assert!((180.0..220.0).contains(&took), "{took} s for 4000 at 20 a second");
    }

    #[test]
    fn pauses_between_arrivals_vary_as_much_as_they_last() {
        // What sets a Poisson process apart from a metronome: the deviation of its pauses is their mean.
        let times = arrivals(4000, 1.0, 3);
        let pauses: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        let variance = pauses.iter().map(|pause| (pause - mean).powi(2)).sum::<f64>() / pauses.len() as f64;
        assert!((0.9..1.1).contains(&(variance.sqrt() / mean)), "{mean} {variance}");
    }
}
