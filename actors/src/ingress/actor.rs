//! The actor of the ingress.

use std::sync::Arc;

use mstar_contract::{ClientEvent, Failure, FailureKind, RequestKey};
use mstar_supervisor::{ChildSpec, StartError};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::client::ClientSink;
use crate::ingress::admission::{Admission, Found};
use crate::ingress::{INGRESS, IngressArgs, IngressLimits};
use crate::messages::{CancelReason, IngressMsg, NodeMsg, Submission, WalkerMsg, Whom};
use crate::metrics::{QUEUED, REQUEST_SECONDS, REQUESTS, RUNNING};
use crate::served::Served;
use crate::snapshot::{IngressSnapshot, RunningRequest};
use crate::walker::{Walker, WalkerArgs};

/// The actor of the ingress.
#[derive(Clone, Copy, Debug, Default)]
pub struct IngressActor;

/// What the ingress keeps.
pub struct IngressState {
    args: IngressArgs,
    admission: Admission<Waiting, Running>,
    draining: Vec<RpcReplyPort<()>>,
    running: metrics::Gauge,
    queued: metrics::Gauge,
}

struct Waiting {
    submission: Box<Submission>,
    timer: Timer,
}

struct Running {
    shown: RunningRequest,
    sink: ClientSink,
    served: Arc<Served>,
    walker: ActorCell,
    came: Instant,
    _timer: Timer,
}

/// The request's timer; it is over with the request.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// --- impl IngressArgs ---

impl IngressArgs {
    /// Returns how a supervisor starts the ingress, under the name [`INGRESS`].
    pub fn child(self) -> ChildSpec {
        ChildSpec::new(INGRESS, move |_, supervisor| {
            let args = self.clone();
            async move {
                let spawned = Actor::spawn_linked(None, IngressActor, args, supervisor).await;
                spawned.map(|(actor, _)| actor.get_cell()).map_err(StartError::from)
            }
        })
    }
}

// --- impl IngressActor ---

impl Actor for IngressActor {
    type Msg = IngressMsg;
    type State = IngressState;
    type Arguments = IngressArgs;

    async fn pre_start(&self, _: ActorRef<IngressMsg>, args: IngressArgs) -> Result<IngressState, ActorProcessingErr> {
        args.routes.retire_orphans();
        let mut admission = Admission::new(args.limits);
        if args.routes.draining() {
            admission.drain();
        }
        Ok(IngressState {
            admission,
            draining: Vec::new(),
            running: metrics::gauge!(RUNNING),
            queued: metrics::gauge!(QUEUED),
            args,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<IngressMsg>,
        message: IngressMsg,
        state: &mut IngressState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IngressMsg::Submit(submission, reply) => {
                let outcome = state.submit(&myself, submission);
                let _ = reply.send(outcome);
            }
            IngressMsg::Cancel(whom, reason) => state.cancel(&whom, reason),
            IngressMsg::Due(key) => state.due(key),
            IngressMsg::Ended(key) => state.ended(key, None),
            IngressMsg::Drain(reply) => {
                state.args.routes.note_draining();
                state.admission.drain();
                state.draining.push(reply);
            }
            IngressMsg::CancelAll(reason) => state.cancel_all(reason),
            IngressMsg::Snapshot(reply) => {
                let _ = reply.send(state.snapshot());
            }
        }
        state.admit(&myself).await;
        state.settle();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<IngressMsg>,
        event: SupervisionEvent,
        state: &mut IngressState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(walker, _, why) => state.walker_gone(&walker, why),
            SupervisionEvent::ActorFailed(walker, error) => state.walker_gone(&walker, Some(error.to_string())),
            _ => return Ok(()),
        }
        state.admit(&myself).await;
        state.settle();
        Ok(())
    }
}

// --- impl IngressState ---

impl IngressState {
    fn submit(&mut self, myself: &ActorRef<IngressMsg>, submission: Box<Submission>) -> Result<(), Failure> {
        let (key, id) = (submission.key, Arc::clone(&submission.request.id));
        let time = submission.due.saturating_duration_since(Instant::now());
        let timer = Timer(myself.send_after(time, move || IngressMsg::Due(key)).abort_handle());
        let outcome = self.admission.enqueue(key, &id, Waiting { submission, timer });
        if let Err(failure) = &outcome {
            tracing::debug!(request.id = &*id, %failure, "request refused");
        }
        outcome
    }

    /// Lets as many run as may.
    async fn admit(&mut self, myself: &ActorRef<IngressMsg>) {
        while let Some((key, waiting)) = self.admission.next() {
            let Waiting { submission, timer } = waiting;
            let Submission { request, served, sink, came, span, trace, .. } = *submission;
            let shown = RunningRequest { key, id: Arc::clone(&request.id), model: request.model.clone() };
            let walker = WalkerArgs {
                key,
                request,
                served: Arc::clone(&served),
                sink: sink.clone(),
                routes: Arc::clone(&self.args.routes),
                faults: Arc::clone(&self.args.faults),
                span,
                trace,
            };
            match Actor::spawn_linked(None, Walker, walker, myself.get_cell()).await {
                Ok((walker, _)) => {
                    let walker = walker.get_cell();
                    self.admission.runs(key, Running { shown, sink, served, walker, came, _timer: timer });
                }
                Err(error) => {
                    self.admission.ended(key, &shown.id);
                    sink.end(ClientEvent::Failed(Failure::new(FailureKind::Internal, error.to_string())));
                }
            }
        }
    }

    fn cancel(&mut self, whom: &Whom, reason: CancelReason) {
        match self.admission.find(whom) {
            Found::Queued(waiting) => end_waiting(&waiting, reason.failure()),
            Found::Running(key) => self.args.routes.tell(key, WalkerMsg::Cancel(reason)),
            Found::Gone => {}
        }
    }

    fn due(&mut self, key: RequestKey) {
        match self.admission.find(&Whom::Key(key)) {
            Found::Queued(waiting) => {
                end_waiting(&waiting, Failure::new(FailureKind::Deadline, "the request's time was over in the queue"));
            }
            Found::Running(key) => self.args.routes.tell(key, WalkerMsg::Deadline),
            Found::Gone => {}
        }
    }

    fn cancel_all(&mut self, reason: CancelReason) {
        for waiting in self.admission.empty_queue() {
            end_waiting(&waiting, reason.failure());
        }
        for (id, _) in self.admission.running() {
            self.args.routes.tell(RequestKey { id: *id, attempt: 0 }, WalkerMsg::Cancel(reason));
        }
    }

    /// A walker has stopped, of itself when there is no reason.
    fn walker_gone(&mut self, walker: &ActorCell, why: Option<String>) {
        let is_it = |running: &Running| running.walker.get_id() == walker.get_id();
        let found = self.admission.running().find(|(_, running)| is_it(running));
        if let Some(key) = found.map(|(_, running)| running.shown.key) {
            self.ended(key, why.as_deref());
        }
    }

    /// Gives a request's place away. Where its walker died of `lost`, this ends the request in its place.
    fn ended(&mut self, key: RequestKey, lost: Option<&str>) {
        let running = self.admission.running().find(|(id, _)| **id == key.id);
        let Some(id) = running.map(|(_, running)| Arc::clone(&running.shown.id)) else { return };
        let Some(running) = self.admission.ended(key, &id) else { return };
        let model = running.shown.model.as_str().to_owned();
        metrics::histogram!(REQUEST_SECONDS, "model" => model.clone()).record(running.came.elapsed().as_secs_f64());
        let Some(why) = lost else { return };
        self.args.routes.remove_walker(key);
        for node in running.served.nodes() {
            self.args.routes.send(node, NodeMsg::Retire(RequestKey { id: key.id, attempt: u32::MAX }));
        }
        if !running.sink.ended() {
            tracing::error!(request.id = &*id, why, "a walker died");
            metrics::counter!(REQUESTS, "model" => model, "outcome" => "internal").increment(1);
            running.sink.end(ClientEvent::Failed(Failure::new(FailureKind::Internal, "the request was lost")));
        }
    }

    fn settle(&mut self) {
        self.running.set(self.admission.running().len() as f64);
        self.queued.set(self.admission.queued() as f64);
        if self.admission.draining() && self.admission.idle() {
            for reply in self.draining.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    fn snapshot(&self) -> IngressSnapshot {
        let IngressLimits { max_running, max_queued, .. } = self.args.limits;
        IngressSnapshot {
            running: self.admission.running().map(|(_, running)| running.shown.clone()).collect(),
            queued: self.admission.queued(),
            max_running,
            max_queued,
            draining: self.admission.draining(),
            admitted: self.admission.admitted,
            refused: self.admission.refused,
        }
    }
}

fn end_waiting(waiting: &Waiting, failure: Failure) {
    let submission = &waiting.submission;
    let outcome = outcome_name(failure.kind);
    metrics::counter!(REQUESTS, "model" => submission.request.model.as_str().to_owned(), "outcome" => outcome)
        .increment(1);
    submission.sink.end(ClientEvent::Failed(failure));
}

/// Returns a failure's name in metrics and spans.
pub(crate) fn outcome_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Invalid => "invalid",
        FailureKind::Overloaded => "overloaded",
        FailureKind::Unavailable => "unavailable",
        FailureKind::Cancelled => "cancelled",
        FailureKind::Deadline => "deadline",
        FailureKind::Internal => "internal",
    }
}
