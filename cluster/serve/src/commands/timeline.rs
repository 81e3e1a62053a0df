//! Where the time of a demo went.

use std::time::Duration;

/// The stages of a demo; what did not happen has no time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timeline {
    /// Until all weights were there.
    pub(crate) weights: Duration,
    /// From then until requests could be handed in.
    pub(crate) boot: Duration,
    /// From the question until it was written down.
    pub(crate) heard: Option<Duration>,
    /// From the question to the first piece of text of the reply.
    pub(crate) first_text: Option<Duration>,
    /// From the question to the first piece of sound.
    pub(crate) first_audio: Option<Duration>,
    /// From the question to the end of the reply.
    pub(crate) total: Duration,
    /// Seconds of sound in the reply.
    pub(crate) audio_seconds: f64,
}

// --- impl Timeline ---

impl std::fmt::Display for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
        let maybe = |time: Option<Duration>| time.map_or_else(|| "-".to_owned(), seconds);
        write!(f, "weights {} | boot {} | ", seconds(self.weights), seconds(self.boot))?;
        write!(f, "heard {} | first text {} | ", maybe(self.heard), maybe(self.first_text))?;
        write!(f, "first audio {} | total {} | ", maybe(self.first_audio), seconds(self.total))?;
        write!(f, "{:.2} s of audio", self.audio_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_happen_has_a_dash() {
        let line = Timeline { heard: Some(Duration::from_millis(1230)), audio_seconds: 2.5, ..Timeline::default() };
        let expected = "weights 0.00 s | boot 0.00 s | heard 1.23 s | first text - | first audio - | total 0.00 s | \
            2.50 s of audio";
        assert_eq!(line.to_string(), expected);
    }
}
