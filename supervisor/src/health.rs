//! Finds children that stopped making progress while work waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What a child shows of its work: how much waits, and a counter that moves with every piece done. The child and those who hand it work
/// write, the supervisor reads; one handle lives through all incarnations of its child.
#[derive(Debug, Default)]
pub struct Progress {
    waiting: AtomicU64,
    ticks: AtomicU64,
}

/// How a child's progress is watched.
#[derive(Clone, Debug)]
pub struct Health {
    /// The handle the child moves.
    pub progress: Arc<Progress>,
    /// How long work may wait without a tick.
    pub stuck_after: Duration,
    /// What to do with a stuck child.
    pub on_stuck: OnStuck,
}

/// What to do with a stuck child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnStuck {
    /// Tell the observer, once per quiet spell.
    #[default]
    Report,
    /// Tell the observer, kill the child and judge that as a failure of it.
    Restart,
}

/// What was seen of a stuck child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckReport {
    /// The child's name.
    pub child: String,
    /// Pieces of work that wait.
    pub waiting: u64,
    /// Pieces done since the start, unchanged all this time.
    pub ticks: u64,
    /// How long nothing moved.
    pub quiet_for: Duration,
}

/// The supervisor's memory of what a child's progress looked like last.
#[derive(Debug)]
pub(crate) struct Watch {
    ticks: u64,
    since: Instant,
    reported: bool,
}

// --- impl Progress ---

impl Progress {
    /// Creates a handle with nothing waiting.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Notes that `pieces` of work were handed over.
    pub fn arrived(&self, pieces: u64) {
        self.waiting.fetch_add(pieces, Ordering::Relaxed);
    }

    /// Notes that `pieces` of work were done or thrown away; this is progress.
    pub fn done(&self, pieces: u64) {
        // A restart sets `waiting` to zero while a straggler may still report: never wrap below zero.
        let _ = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| Some(waiting.saturating_sub(pieces)));
        self.tick();
    }

    /// Notes progress inside one piece of work (a decode step of a long batch).
    pub fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets what waits, for a child that knows its own queue.
    pub fn set_waiting(&self, pieces: u64) {
        self.waiting.store(pieces, Ordering::Relaxed);
    }

    /// Returns what waits.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the progress made so far.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }
}

// --- impl StuckReport ---

impl std::fmt::Display for StuckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StuckReport { child, waiting, quiet_for, .. } = self;
        write!(f, "{child} made no progress for {:.1} s while {waiting} pieces of work wait", quiet_for.as_secs_f64())
    }
}

// --- impl Watch ---

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Watch { ticks: 0, since: now, reported: false }
    }

    /// Looks at a child's progress and returns a report the first time it has been quiet for too long.
    pub(crate) fn look(&mut self, child: &str, health: &Health, now: Instant) -> Option<StuckReport> {
        let (waiting, ticks) = (health.progress.waiting(), health.progress.ticks());
        if waiting == 0 || ticks != self.ticks {
            *self = Watch { ticks, since: now, reported: false };
            return None;
        }
        let quiet_for = now.duration_since(self.since);
        if self.reported || quiet_for < health.stuck_after {
            return None;
        }
        self.reported = true;
        Some(StuckReport { child: child.to_owned(), waiting, ticks, quiet_for })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_means_work_waits_and_nothing_moves() {
        let (start, progress) = (Instant::now(), Progress::new());
        let health =
            Health { progress: progress.clone(), stuck_after: Duration::from_secs(3), on_stuck: OnStuck::Report };
        let mut watch = Watch::new(start);
        let mut look = |second| watch.look("node", &health, start + Duration::from_secs(second)).map(|r| r.to_string());
        assert_eq!(look(10), None, "idle is not stuck");
        progress.arrived(2);
        assert_eq!(look(12), None);
        progress.done(1);
        assert_eq!(look(14), None, "it moved");
        assert_eq!(look(16), None);
        assert_eq!(look(17).as_deref(), Some("node made no progress for 3.0 s while 1 pieces of work wait"));
        assert_eq!(look(18), None, "a quiet spell is reported once");
        progress.tick();
        assert_eq!(look(19), None);
        assert!(look(22).is_some(), "a new spell is reported again");
    }

    #[test]
    fn what_waits_never_falls_below_zero() {
        let progress = Progress::new();
        progress.arrived(1);
        progress.done(3);
        assert_eq!((progress.waiting(), progress.ticks()), (0, 1));
    }
}
