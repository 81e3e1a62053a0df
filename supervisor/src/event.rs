//! What an observer hears.

use std::time::Duration;

use ractor::ActorCell;

use crate::{Incarnation, StuckReport};

/// Something that happened to a child.
#[derive(Clone, Debug)]
pub enum SupervisionEvent {
    /// An incarnation is up: messages may go to `cell`.
    Started {
        /// The child's name.
        child: String,
        /// The new incarnation.
        incarnation: Incarnation,
        /// The live actor.
        cell: ActorCell,
    },
    /// An incarnation is gone, with its mailbox. Comes without a `Started` when the start itself failed.
    Exited {
        /// The child's name.
        child: String,
        /// The incarnation that ended.
        incarnation: Incarnation,
        /// Why.
        reason: ExitReason,
    },
    /// The child will be started again.
    Restarting {
        /// The child's name.
        child: String,
        /// How many restarts this child has had, this one included.
        restarts: u64,
        /// The pause before it.
        after: Duration,
    },
    /// The child is given up and stays down until it is revived.
    MarkedDown {
        /// The child's name.
        child: String,
        /// Why, in words for a client and a log.
        reason: String,
    },
    /// Work waits for the child and nothing moves.
    Stuck {
        /// The child's name.
        child: String,
        /// What was seen.
        report: StuckReport,
    },
}

/// Why an incarnation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It ended by itself, with the reason it gave.
    Finished(Option<String>),
    /// It panicked or returned an error; the message is kept.
    Failed(String),
    /// Somebody else killed it.
    Killed,
    /// It could not be started; the panic or error message is kept.
    StartFailed(String),
    /// Its supervisor killed it because it was stuck.
    Stuck(StuckReport),
    /// Its supervisor stopped it: shutdown, or a sibling it depends on restarts.
    Stopped,
}

/// Hears what happens to the children of a supervisor. Called from the supervisor's own task, synchronously and in order: the next event
/// is handled only after this returns, so it must be quick, and a panic in it is the supervisor's.
pub trait Observe: Send + Sync + 'static {
    /// Takes note of an event.
    fn event(&self, event: SupervisionEvent);
}

// --- impl SupervisionEvent ---

impl SupervisionEvent {
    /// Returns the name of the child it happened to.
    pub fn child(&self) -> &str {
        match self {
            SupervisionEvent::Started { child, .. }
            | SupervisionEvent::Exited { child, .. }
            | SupervisionEvent::Restarting { child, .. }
            | SupervisionEvent::MarkedDown { child, .. }
            | SupervisionEvent::Stuck { child, .. } => child,
        }
    }
}

// --- impl ExitReason ---

impl ExitReason {
    /// Whether this end is a fault, as `RestartPolicy::OnFailure` means it.
    pub fn is_failure(&self) -> bool {
        !matches!(self, ExitReason::Finished(_) | ExitReason::Stopped)
    }
}

impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitReason::Finished(None) => f.write_str("finished"),
            ExitReason::Finished(Some(why)) => write!(f, "finished: {why}"),
            ExitReason::Failed(why) => write!(f, "failed: {why}"),
            ExitReason::Killed => f.write_str("killed"),
            ExitReason::StartFailed(why) => write!(f, "start failed: {why}"),
            ExitReason::Stuck(report) => write!(f, "stuck: {report}"),
            ExitReason::Stopped => f.write_str("stopped"),
        }
    }
}

// --- impl Observe ---

impl<F: Fn(SupervisionEvent) + Send + Sync + 'static> Observe for F {
    fn event(&self, event: SupervisionEvent) {
        self(event);
    }
}
