//! How many restarts are too many.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// At most `max_restarts` restarts in any span of `within`; the next one is too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts that are accepted inside the span.
    pub max_restarts: u32,
    /// The span.
    pub within: Duration,
}

/// The restarts that still count against an [`Intensity`].
#[derive(Debug)]
pub(crate) struct RestartWindow {
    intensity: Intensity,
    recent: VecDeque<Instant>,
}

/// The answer to a wish to restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Restart,
    Exhausted,
}

// --- impl Intensity ---

impl Default for Intensity {
    fn default() -> Self {
        Intensity { max_restarts: 5, within: Duration::from_secs(60) }
    }
}

impl std::fmt::Display for Intensity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} restarts within {:?}", self.max_restarts, self.within)
    }
}

// --- impl RestartWindow ---

impl RestartWindow {
    pub(crate) fn new(intensity: Intensity) -> Self {
        RestartWindow { intensity, recent: VecDeque::new() }
    }

    /// Records a restart at `now` if it is still allowed.
    pub(crate) fn ask(&mut self, now: Instant) -> Verdict {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= self.intensity.within) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.intensity.max_restarts as usize {
            return Verdict::Exhausted;
        }
        self.recent.push_back(now);
        Verdict::Restart
    }

    pub(crate) fn clear(&mut self) {
        self.recent.clear();
    }

    pub(crate) fn intensity(&self) -> Intensity {
        self.intensity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_restarts_inside_the_span_count() {
        let start = Instant::now();
        let mut window = RestartWindow::new(Intensity { max_restarts: 2, within: Duration::from_secs(10) });
        let mut ask = |second| window.ask(start + Duration::from_secs(second));
        assert_eq!(ask(0), Verdict::Restart);
        assert_eq!(ask(5), Verdict::Restart);
        assert_eq!(ask(9), Verdict::Exhausted);
        assert_eq!(ask(10), Verdict::Restart, "the first has left the span");
        assert_eq!(ask(11), Verdict::Exhausted);
    }

    #[test]
    fn zero_allows_none() {
        let mut window = RestartWindow::new(Intensity { max_restarts: 0, within: Duration::from_secs(1) });
        assert_eq!(window.ask(Instant::now()), Verdict::Exhausted);
    }
}
