//! The handle to a supervisor.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorCell, ActorRef, RpcReplyPort};

use crate::messages::{Snapshot, SupervisorMsg};
use crate::supervisor::{Charter, Supervisor};
use crate::{Observe, SupervisorSpec};

/// Addresses a live supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorRef {
    actor: ActorRef<SupervisorMsg>,
}

/// A supervisor could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Two children have one name.
    #[error("two children are called {0}")]
    SameName(String),
    /// The actor could not be spawned.
    #[error("the supervisor could not start")]
    Spawn(#[source] Box<ractor::SpawnErr>),
    /// It did not answer in time.
    #[error("the supervisor did not answer within {0:?}")]
    Late(Duration),
    /// It is gone.
    #[error("the supervisor is gone")]
    Gone,
}

// --- impl SupervisorRef ---

impl SupervisorRef {
    /// Starts a supervisor with nobody above it. Its children start in the background; see [`SupervisorRef::settled`].
    pub async fn start(spec: SupervisorSpec, observer: Arc<dyn Observe>) -> Result<Self, SupervisorError> {
        let charter = checked(spec, observer)?;
        let (actor, _) =
            Actor::spawn(None, Supervisor, charter).await.map_err(|error| SupervisorError::Spawn(Box::new(error)))?;
        Ok(SupervisorRef { actor })
    }

    /// Starts a supervisor under `parent`, which hears of its end and takes it down with itself.
    pub async fn start_linked(
        spec: SupervisorSpec,
        observer: Arc<dyn Observe>,
        parent: ActorCell,
    ) -> Result<Self, SupervisorError> {
        let charter = checked(spec, observer)?;
        let spawned = Actor::spawn_linked(None, Supervisor, charter, parent).await;
        let (actor, _) = spawned.map_err(|error| SupervisorError::Spawn(Box::new(error)))?;
        Ok(SupervisorRef { actor })
    }

    /// Returns the supervisor's actor, as a child of another one.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Returns how the children stand.
    pub async fn snapshot(&self, within: Duration) -> Result<Snapshot, SupervisorError> {
        self.ask(SupervisorMsg::Snapshot, within).await
    }

    /// Waits until every child is running, finished or down, and returns how they stand.
    pub async fn settled(&self, within: Duration) -> Result<Snapshot, SupervisorError> {
        self.ask(SupervisorMsg::Settled, within).await
    }

    /// Starts a child that is down again, its count of restarts cleared; returns false when no child of this name is down.
    pub async fn revive(&self, child: &str, within: Duration) -> Result<bool, SupervisorError> {
        self.ask(|reply| SupervisorMsg::Revive(child.to_owned(), reply), within).await
    }

    /// Stops the children in reverse order, each within its own deadline, then the supervisor. Idempotent.
    pub async fn shutdown(&self, within: Duration) -> Result<(), SupervisorError> {
        self.actor.stop(None);
        self.actor.wait(Some(within)).await.map_err(|_| SupervisorError::Late(within))
    }

    async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> SupervisorMsg,
        within: Duration,
    ) -> Result<T, SupervisorError> {
        match self.actor.call(message, Some(within)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout) => Err(SupervisorError::Late(within)),
            Ok(CallResult::SenderError) | Err(_) => Err(SupervisorError::Gone),
        }
    }
}

fn checked(spec: SupervisorSpec, observer: Arc<dyn Observe>) -> Result<Charter, SupervisorError> {
    let mut names = BTreeSet::new();
    match spec.children.iter().find(|child| !names.insert(&child.name)) {
        Some(child) => Err(SupervisorError::SameName(child.name.clone())),
        None => Ok(Charter { spec, observer }),
    }
}
