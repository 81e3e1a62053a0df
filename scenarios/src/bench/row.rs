//! What clients noticed under one load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::listener::{Heard, heard};
use super::load::Load;
use super::sample::Sample;
use super::spread::Spread;
use crate::machine::{mebibytes, rounded};

/// What clients noticed under one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// How requests followed each other.
    pub load: Load,
    /// From the first request to the last one's end.
    pub wall: Duration,
    /// Requests that were answered.
    pub answered: usize,
    /// Requests that failed, by reason.
    pub failures: BTreeMap<String, usize>,
    /// Milliseconds until the first piece of text.
    pub first_text_ms: Option<Spread>,
    /// Milliseconds until the first piece of audio.
    pub first_audio_ms: Option<Spread>,
    /// Milliseconds between two pieces of text.
    pub gap_ms: Option<Spread>,
    /// Milliseconds until the end of the answer.
    pub total_ms: Option<Spread>,
    /// Seconds of work for each second of audio.
    pub real_time_factor: Option<Spread>,
    /// Tokens of all answers.
    pub tokens: u64,
    /// Whether the server counted them; else each piece of text counts as one.
    pub tokens_told: bool,
    /// Seconds of audio of all answers, or of all recordings heard.
    pub audio: f64,
    /// How a listener would have been served.
    pub heard: Heard,
    /// Rows of a batch in the mean, by node and op, where the server tells.
    pub mean_batch: BTreeMap<String, f64>,
    /// The most memory that the server held, in bytes, where that is known.
    pub peak_memory: Option<u64>,
    /// The machine's load average before.
    pub load_before: Option<f64>,
    /// And after.
    pub load_after: Option<f64>,
}

// --- impl Row ---

impl Row {
    /// Tallies samples.
    pub fn of(load: Load, wall: Duration, samples: &[Sample]) -> Self {
        let good: Vec<&Sample> = samples.iter().filter(|sample| sample.failure.is_none()).collect();
        let mut failures = BTreeMap::new();
        for why in samples.iter().filter_map(|sample| sample.failure.clone()) {
            *failures.entry(why).or_insert(0) += 1;
        }
        let ms = |times: &mut dyn Iterator<Item = Duration>| Spread::of(times.map(|time| time.as_secs_f64() * 1e3));
        let all_heard = good.iter().map(|sample| heard(&sample.audio)).fold(Heard::default(), |sum, next| Heard {
            followed: sum.followed + next.followed,
            in_time: sum.in_time + next.in_time,
            silence: sum.silence + next.silence,
        });
        Self {
            load,
            wall,
            answered: good.len(),
            failures,
            first_text_ms: ms(&mut good.iter().filter_map(|sample| sample.texts.first().copied())),
            first_audio_ms: ms(&mut good.iter().filter_map(|sample| sample.audio.first().map(|piece| piece.after))),
            gap_ms: ms(&mut good.iter().flat_map(|sample| sample.gaps())),
            total_ms: ms(&mut good.iter().map(|sample| sample.total)),
            real_time_factor: Spread::of(good.iter().filter_map(|sample| sample.real_time_factor())),
            tokens: good.iter().map(|sample| sample.tokens.unwrap_or(sample.texts.len() as u64)).sum(),
            tokens_told: good.iter().any(|sample| sample.tokens.is_some()),
            audio: good.iter().map(|sample| sample.seconds_of_audio()).sum(),
            heard: all_heard,
            mean_batch: BTreeMap::new(),
            peak_memory: None,
            load_before: None,
            load_after: None,
        }
    }

    /// Returns how many requests failed.
    pub fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    /// Returns a quantity per second; nothing where there was none.
    pub fn per_second(&self, quantity: f64) -> Option<f64> {
        let wall = self.wall.as_secs_f64();
        (quantity > 0.0 && wall > 0.0).then(|| quantity / wall)
    }

    /// Returns the share of audio pieces that came in time; nothing where none had to follow another.
    pub fn in_time(&self) -> Option<f64> {
        (self.heard.followed > 0).then(|| self.heard.in_time as f64 / self.heard.followed as f64)
    }

    /// Returns the row as JSON; what does not apply is absent.
    pub fn json(&self) -> Value {
        let (name, load) = self.load.label();
        let mut row = json!({
            name: load, "requests": self.answered + self.failed(), "errors": self.failed(),
            "wall_s": rounded(self.wall.as_secs_f64(), 3), "requests_per_s": self.per_second(self.answered as f64).map(|rate| rounded(rate, 3)),
        });
        let spread = |spread: Option<Spread>, decimals| spread.map(|spread| spread.json(decimals));
        let number = |value: Option<f64>, decimals| value.map(|value| json!(rounded(value, decimals)));
        let tokens = if self.tokens_told { "tokens" } else { "text_pieces" };
        let audio = self.per_second(self.audio);
        let figures = [
            ("first_text_ms", spread(self.first_text_ms, 2)),
            ("first_audio_ms", spread(self.first_audio_ms, 2)),
            ("gap_ms", spread(self.gap_ms, 3)),
            ("total_ms", spread(self.total_ms, 2)),
            ("rtf", spread(self.real_time_factor, 4)),
            (tokens, (self.tokens > 0).then(|| json!(self.tokens))),
            (if self.tokens_told { "tokens_per_s" } else { "text_pieces_per_s" }, {
                number(self.per_second(self.tokens as f64), 2)
            }),
            ("audio_s", (self.audio > 0.0).then(|| json!(rounded(self.audio, 2)))),
            ("audio_s_per_s", number(audio, 3)),
            ("in_time", number(self.in_time(), 4)),
            ("silence_s", self.in_time().map(|_| json!(rounded(self.heard.silence, 3)))),
            ("peak_memory_mib", self.peak_memory.map(|bytes| json!(mebibytes(bytes as f64)))),
            ("load_before", number(self.load_before, 2)),
            ("load_after", number(self.load_after, 2)),
            ("failures", (!self.failures.is_empty()).then(|| json!(self.failures))),
            ("mean_batch", (!self.mean_batch.is_empty()).then(|| self.mean_batches())),
        ];
        for (key, value) in figures {
            if let Some(value) = value {
                row[key] = value;
            }
        }
        row
    }

    fn mean_batches(&self) -> Value {
        self.mean_batch.iter().map(|(node, &mean)| (node.clone(), json!(rounded(mean, 2)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::listener::Piece;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_failed_is_counted_apart_and_measured_nowhere() {
        let good = Sample { texts: vec![ms(10), ms(14)], tokens: Some(5), total: ms(20), ..Sample::default() };
        let bad = Sample { texts: vec![ms(900)], total: ms(900), ..Sample::failed("503") };
        let row = Row::of(Load::Closed(2), ms(500), &[good.clone(), bad, good]).json();
        assert_eq!(row["errors"], 1);
        assert_eq!(row["failures"]["503"], 1);
        assert_eq!(row["first_text_ms"]["max"], 10.0);
        assert_eq!(row["gap_ms"]["p50"], 4.0);
        assert_eq!(row["tokens_per_s"], 20.0);
        assert!(row["rtf"].is_null() && row["in_time"].is_null(), "{row}");
    }

    #[test]
    fn audio_is_measured_by_its_listener() {
        let audio = vec![Piece { after: ms(100), seconds: 0.5 }, Piece { after: ms(700), seconds: 1.5 }];
        let spoken = Sample { audio, total: ms(1000), listened: 9.0, ..Sample::default() };
        let row = Row::of(Load::Open(0.5), ms(1000), &[spoken]).json();
        assert_eq!((&row["rate"], &row["first_audio_ms"]["p50"]), (&json!(0.5), &json!(100.0)));
        assert_eq!((&row["rtf"]["p50"], &row["audio_s_per_s"]), (&json!(0.5), &json!(2.0)));
        assert_eq!((&row["in_time"], &row["silence_s"]), (&json!(0.0), &json!(0.1)));
        let written = Sample { texts: vec![ms(50)], listened: 4.0, total: ms(100), ..Sample::default() };
        let row = Row::of(Load::Waves(1), ms(1000), &[written]).json();
        assert_eq!((&row["rtf"]["p50"], &row["text_pieces"]), (&json!(0.025), &json!(1)));
    }
}
