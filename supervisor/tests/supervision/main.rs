//! What a supervisor promises, on paused time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod escalation;
mod health;
mod restarts;
mod stage;
mod starts;
mod story;
