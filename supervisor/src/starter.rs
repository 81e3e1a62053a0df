//! Runs one start of one child in an actor of its own: linked to the supervisor, gone when it is.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};

use crate::messages::SupervisorMsg;
use crate::{Incarnation, StartFuture};

/// Calls a child's start function and reports what came of it. A panic in it reaches the supervisor as this actor's failure.
pub(crate) struct Starter;

/// One start.
pub(crate) struct Job {
    pub(crate) child: usize,
    pub(crate) incarnation: Incarnation,
    pub(crate) start: Arc<dyn Fn(Incarnation, ActorCell) -> StartFuture + Send + Sync>,
    pub(crate) supervisor: ActorRef<SupervisorMsg>,
}

/// A starter hears nothing.
pub(crate) enum StarterMsg {}

impl ractor::Message for StarterMsg {}

// --- impl Starter ---

impl Actor for Starter {
    type Msg = StarterMsg;
    type State = Job;
    type Arguments = Job;

    async fn pre_start(&self, _: ActorRef<StarterMsg>, job: Job) -> Result<Job, ActorProcessingErr> {
        Ok(job)
    }

    async fn post_start(&self, myself: ActorRef<StarterMsg>, job: &mut Job) -> Result<(), ActorProcessingErr> {
        let result = (job.start)(job.incarnation, job.supervisor.get_cell()).await;
        job.supervisor.cast(SupervisorMsg::StartReturned { child: job.child, incarnation: job.incarnation, result })?;
        myself.stop(None);
        Ok(())
    }
}
