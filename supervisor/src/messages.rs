//! Every message of the supervisor, who sends it and why. None travels between processes.

use ractor::{ActorCell, RpcReplyPort};

use crate::{Incarnation, StartError};

/// What a supervisor is sent.
pub(crate) enum SupervisorMsg {
    /// From the starter of a child: the start came to an end.
    StartReturned { child: usize, incarnation: Incarnation, result: Result<ActorCell, StartError> },
    /// From a timer: something about this incarnation is due.
    Due { child: usize, incarnation: Incarnation, what: Due },
    /// From a timer: look at everybody's progress.
    CheckHealth,
    /// From the admin view: how do the children stand?
    Snapshot(RpcReplyPort<Snapshot>),
    /// From whoever boots the tree: answered once every child is running, finished or down.
    Settled(RpcReplyPort<Snapshot>),
    /// From the admin view: start a child that is down again.
    Revive(String, RpcReplyPort<bool>),
}

/// What is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// The pause before the restart is over.
    Restart,
    /// The start took too long.
    Start,
    /// The stop took too long: kill.
    Stop,
    /// The kill took too long (the child blocks its thread): go on without it.
    Kill,
    /// The child ended so early that its exit may have gone unheard.
    Exit,
}

/// How a supervisor's children stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The children in the order of their declaration.
    pub children: Vec<ChildSnapshot>,
}

/// How a child stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSnapshot {
    /// Its name.
    pub name: String,
    /// What it does now.
    pub state: ChildState,
    /// Its latest incarnation; 0 before the first start.
    pub incarnation: Incarnation,
    /// Restarts since the supervisor started.
    pub restarts: u64,
    /// Why its last life ended.
    pub last_reason: Option<String>,
    /// Work that waits for it, if its progress is watched.
    pub waiting: Option<u64>,
    /// Progress it made, if watched.
    pub ticks: Option<u64>,
}

/// What a child does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It waits for its turn to start.
    Held,
    /// Its start is under way.
    Starting,
    /// It is up.
    Running,
    /// It ended and will be started after a pause.
    BackingOff,
    /// It will be stopped as soon as those after it are.
    Doomed,
    /// It was asked to stop and will be started again.
    Stopping,
    /// It was killed because it was stuck.
    Killing,
    /// It ended and its policy wants no restart.
    Finished,
    /// It failed too often and is given up.
    Down,
}

impl ractor::Message for SupervisorMsg {}

// --- impl Snapshot ---

impl Snapshot {
    /// Returns how the child of this name stands.
    pub fn child(&self, name: &str) -> Option<&ChildSnapshot> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Whether every child runs or has finished.
    pub fn healthy(&self) -> bool {
        self.children.iter().all(|child| matches!(child.state, ChildState::Running | ChildState::Finished))
    }
}

// --- impl ChildState ---

impl ChildState {
    /// Returns the state's name for a view.
    pub fn as_str(self) -> &'static str {
        match self {
            ChildState::Held => "held",
            ChildState::Starting => "starting",
            ChildState::Running => "running",
            ChildState::BackingOff => "backing_off",
            ChildState::Doomed => "doomed",
            ChildState::Stopping => "stopping",
            ChildState::Killing => "killing",
            ChildState::Finished => "finished",
            ChildState::Down => "down",
        }
    }
}
