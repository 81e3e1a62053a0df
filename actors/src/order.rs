//! Who goes first, at a node's queues: whoever was promised the earliest time. A row without a listener is promised a
//! turn as if it were due a little after it came, so that such rows go in the order of their coming; one whose listener
//! runs dry before that goes ahead of them, one whose listener has plenty lets them pass, though not for ever. Promises
//! do not change, and those made later are later in the end: nobody starves. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// How long a row without a listener waits as if that were nothing. A listener who has less to hear is in a hurry: there
/// is about so much to compute between a step and the sound that it leads to.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// Longest that a row lets others pass on account of its listener's plenty.
const PLENTY: Duration = Duration::from_secs(2);

/// Returns when a row is promised its turn: it came then, and its listener, if there is one, runs dry then.
pub(crate) fn promised(came: Instant, due: Option<Instant>) -> Instant {
    due.map_or(came + PATIENCE, |due| due.min(came + PLENTY))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Orders rows that came so many milliseconds after the start, with what their listeners have left to hear then.
    fn order<const N: usize>(rows: [(&'static str, u64, Option<i64>); N]) -> String {
        let start = Instant::now() + Duration::from_secs(3600);
        let ms = Duration::from_millis;
        let mut rows = rows.map(|(name, came, left)| {
            let came = start + ms(came);
            let due = left.map(|left| if left < 0 { came - ms(left.unsigned_abs()) } else { came + ms(left as u64) });
            (promised(came, due), name)
        });
        rows.sort();
        rows.map(|(_, name)| name).join(" ")
    }

    #[test]
    fn the_earliest_promise_goes_first() {
        let cases = [
            (order([("first", 0, None), ("second", 1, None)]), "first second"),
            (order([("text", 0, None), ("dry", 10, Some(100))]), "dry text"),
            (order([("text", 0, None), ("rich", 0, Some(1000))]), "text rich"),
            (order([("dry", 0, Some(-50)), ("drier", 5, Some(-400)), ("text", 0, None)]), "drier dry text"),
            (order([("old text", 0, None), ("dry", 900, Some(100))]), "old text dry"),
            (order([("very rich", 0, Some(60_000)), ("late text", 1600, None)]), "very rich late text"),
        ];
        for (got, expected) in cases {
            assert_eq!(got, expected);
        }
    }
}
