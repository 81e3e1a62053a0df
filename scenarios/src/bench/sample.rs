//! What one request's client saw.

use std::time::Duration;

use super::listener::Piece;

/// What one request's client saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When pieces of text came, after the request was due.
    pub texts: Vec<Duration>,
    /// Pieces of audio.
    pub audio: Vec<Piece>,
    /// Tokens of the answer, where the server tells.
    pub tokens: Option<u64>,
    /// Seconds of audio that the server was to hear.
    pub listened: f64,
    /// When the answer had ended.
    pub total: Duration,
    /// Why it failed, in one word or two; nothing when it did not.
    pub failure: Option<String>,
}

// --- impl Sample ---

impl Sample {
    /// Returns the sample of a request that failed.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { failure: Some(why.into()), ..Self::default() }
    }

    /// Returns seconds of audio that came.
    pub fn spoken(&self) -> f64 {
        self.audio.iter().map(|piece| piece.seconds).sum()
    }

    /// Returns the seconds of audio that the request was about: those that came, or else those that were heard.
    pub fn seconds_of_audio(&self) -> f64 {
        if self.audio.is_empty() { self.listened } else { self.spoken() }
    }

    /// Returns the time per second of audio; nothing where there was none.
    pub fn real_time_factor(&self) -> Option<f64> {
        let seconds = self.seconds_of_audio();
        (seconds > 0.0).then(|| self.total.as_secs_f64() / seconds)
    }

    /// Returns the pauses between pieces of text.
    pub fn gaps(&self) -> impl Iterator<Item = Duration> {
        self.texts.windows(2).map(|pair| pair[1].saturating_sub(pair[0]))
    }
}
