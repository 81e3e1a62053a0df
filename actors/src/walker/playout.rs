//! How long the listener still has something to hear. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The audio that was given to the client, as if it played from the moment the first of it was there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Playout {
    /// When the last sample given so far will have been played.
    dry: Option<Instant>,
}

// --- impl Playout ---

impl Playout {
    /// Notes that so much audio was given. Where the listener had run dry, it plays on from now.
    pub(crate) fn give(&mut self, audio: Duration, now: Instant) {
        self.dry = Some(self.dry.map_or(now, |dry| dry.max(now)) + audio);
    }

    /// Returns when the listener runs dry, if anybody listens.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.dry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_runs_dry_after_what_was_given() {
        let (mut playout, start) = (Playout::default(), Instant::now());
        assert_eq!(playout.due(), None);
        let seconds = Duration::from_secs;
        // When, how much, and when it runs dry, in seconds after the start.
        for (now, audio, dry) in [(1, 2, 3), (2, 2, 5), (5, 1, 6), (9, 1, 10)] {
            playout.give(seconds(audio), start + seconds(now));
            assert_eq!(playout.due(), Some(start + seconds(dry)));
        }
    }
}
