//! What a supervisor is told: its children and its rules.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ractor::ActorCell;

use crate::{Backoff, Health, Intensity};

/// The number of a child's life: the first start is 1, every further start one more. Messages of a lower one are from the dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The future a child's start function returns.
pub type StartFuture = Pin<Box<dyn Future<Output = Result<ActorCell, StartError>> + Send>>;

/// A child: how to start it, and when to start it again.
pub struct ChildSpec {
    /// Its name, unique among its siblings.
    pub name: String,
    /// Starts an incarnation, linked to the supervisor given.
    pub start: Arc<dyn Fn(Incarnation, ActorCell) -> StartFuture + Send + Sync>,
    /// When to start it again. Default: always.
    pub restart: RestartPolicy,
    /// How many restarts are accepted. Default: 5 within a minute.
    pub intensity: Intensity,
    /// How long a start may take. Default: 60 s.
    pub start_within: Duration,
    /// How long a stop may take before the child is killed. Default: 5 s.
    pub shutdown_within: Duration,
    /// How its progress is watched, if at all. Default: not.
    pub health: Option<Health>,
}

/// A supervisor: its children, in the order they start and against which they stop.
pub struct SupervisorSpec {
    /// The children.
    pub children: Vec<ChildSpec>,
    /// Who restarts with whom. Default: one for one.
    pub strategy: Strategy,
    /// How many restarts of all children together are accepted before the supervisor gives up itself. Default: no limit.
    pub intensity: Option<Intensity>,
    /// What happens when a child exceeds its own intensity. Default: it is marked down.
    pub on_exhausted: OnExhausted,
    /// The pause before restarts.
    pub backoff: Backoff,
    /// Decides the jitter of pauses.
    pub seed: u64,
    /// How often progress is looked at. Default: 1 s.
    pub check_every: Duration,
    /// How long a killed child may take to end before the supervisor goes on without it: it blocks its thread. Default: 1 s.
    pub kill_within: Duration,
    /// Where incarnations are counted. A nested supervisor that is itself restarted must share its ledger between its lives.
    pub ledger: Ledger,
}

/// When a child that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// Whatever the reason.
    #[default]
    Always,
    /// When it failed, was killed or could not start.
    OnFailure,
    /// Not at all.
    Never,
}

/// Who restarts with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Only the child that ended.
    #[default]
    OneForOne,
    /// The child that ended and all that were declared after it: they depend on it. Such children also start one after the other.
    RestForOne,
}

/// What happens when a child exceeds its intensity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExhausted {
    /// It is marked down and stays so; its siblings go on.
    #[default]
    MarkDown,
    /// The supervisor stops all children and fails itself: a case for its own supervisor.
    Escalate,
}

/// Counts incarnations per child name; clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<String, u64>>>);

/// A child could not be started.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

// --- impl Incarnation ---

impl std::fmt::Display for Incarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

// --- impl ChildSpec ---

impl ChildSpec {
    /// Creates a child with the default rules.
    pub fn new<F, Fut>(name: impl Into<String>, start: F) -> Self
    where
        F: Fn(Incarnation, ActorCell) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ActorCell, StartError>> + Send + 'static,
    {
        ChildSpec {
            name: name.into(),
            start: Arc::new(move |incarnation, supervisor| Box::pin(start(incarnation, supervisor))),
            restart: RestartPolicy::default(),
            intensity: Intensity::default(),
            start_within: Duration::from_secs(60),
            shutdown_within: Duration::from_secs(5),
            health: None,
        }
    }
}

// --- impl SupervisorSpec ---

impl SupervisorSpec {
    /// Creates a supervisor with the default rules.
    pub fn new(children: Vec<ChildSpec>) -> Self {
        SupervisorSpec {
            children,
            strategy: Strategy::default(),
            intensity: None,
            on_exhausted: OnExhausted::default(),
            backoff: Backoff::default(),
            seed: 0,
            check_every: Duration::from_secs(1),
            kill_within: Duration::from_secs(1),
            ledger: Ledger::default(),
        }
    }
}

// --- impl Ledger ---

impl Ledger {
    /// Returns the next incarnation of `child`.
    pub(crate) fn next(&self, child: &str) -> Incarnation {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(child.to_owned()).or_default();
        *count += 1;
        Incarnation(*count)
    }
}

// --- impl StartError ---

impl From<ractor::SpawnErr> for StartError {
    fn from(error: ractor::SpawnErr) -> Self {
        match error {
            ractor::SpawnErr::StartupFailed(why) => StartError(why.to_string()),
            other => StartError(other.to_string()),
        }
    }
}
