//! The way in: admits requests up to a bound, lets a bounded number wait, refuses the rest at once; supervises walkers
//! and ends requests in place of a walker that died. [`Admission`] decides, the actor carries out.

mod actor;
mod admission;

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{Failure, FailureKind, Request, RequestId, RequestKey, TraceContext};
use ractor::rpc::CallResult;
use ractor::{ActorRef, RpcReplyPort};
use tokio::time::Instant;

pub use actor::IngressActor;
pub(crate) use actor::outcome_name;

use crate::client::{self, ClientStream};
use crate::faults::{Faults, NoFaults};
use crate::messages::{CancelReason, IngressMsg, Submission, WalkerMsg, Whom};
use crate::routes::Routes;
use crate::served::Served;
use crate::snapshot::{IngressSnapshot, WalkerPosition};
use crate::trace;

/// The bounds of what is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressLimits {
    /// Most requests that run at a time.
    pub max_running: usize,
    /// Most requests that wait for their turn.
    pub max_queued: usize,
    /// Most emissions of a request that wait for its client.
    pub client_credit: usize,
    /// The time a request has when it names none.
    pub deadline: Duration,
}

/// Everything an ingress is made of.
#[derive(Clone)]
pub struct IngressArgs {
    /// Its bounds.
    pub limits: IngressLimits,
    /// Where messages go.
    pub routes: Arc<Routes>,
    /// Where walkers fail on purpose.
    pub faults: Arc<dyn Faults>,
}

/// Addresses the ingress through all its lives. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IngressHandle {
    limits: IngressLimits,
    routes: Arc<Routes>,
}

/// A request as the gateway hands it in.
#[derive(Clone, Debug)]
pub struct Submit {
    /// What is asked.
    pub request: Arc<Request>,
    /// What serves it.
    pub served: Arc<Served>,
    /// How long it may take, waiting included.
    pub deadline: Option<Duration>,
    /// The trace it belongs to. Without ids but sampled, it begins one.
    pub trace: TraceContext,
}

/// The name of the ingress among its supervisor's children. No node may have it.
pub const INGRESS: &str = "ingress";
/// How long the ingress may take to answer: it only counts.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long cancelled requests may take to end.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);

impl Default for IngressLimits {
    fn default() -> Self {
        Self { max_running: 64, max_queued: 256, client_credit: 64, deadline: Duration::from_secs(600) }
    }
}

// --- impl IngressArgs ---

impl IngressArgs {
    /// Returns arguments without faults.
    pub fn new(limits: IngressLimits, routes: Arc<Routes>) -> Self {
        Self { limits, routes, faults: Arc::new(NoFaults) }
    }

    /// Returns the handle of the ingress that is started with these arguments.
    pub fn handle(&self) -> IngressHandle {
        IngressHandle { limits: self.limits, routes: Arc::clone(&self.routes) }
    }
}

// --- impl IngressHandle ---

impl IngressHandle {
    /// Hands a request in. It is refused at once when the model's plan finds it invalid, when a node that it needs is
    /// down, or when too many wait.
    pub async fn submit(&self, submit: Submit) -> Result<ClientStream, Failure> {
        let Submit { request, served, deadline, trace } = submit;
        self.check(&request, &served)?;
        let key = self.routes.next_key();
        let id = Arc::clone(&request.id);
        let span = trace::request(trace, &id, request.model.as_str());
        let trace = trace::context(&span, trace);
        let (sink, stream) =
            client::channel(&self.routes, key, id, request.model.clone(), self.limits.client_credit, trace);
        let came = Instant::now();
        let due = came + deadline.unwrap_or(self.limits.deadline);
        let submission = Box::new(Submission { key, request, served, sink, due, came, span, trace });
        self.ask(|reply| IngressMsg::Submit(submission, reply)).await??;
        Ok(stream)
    }

    /// Ends a request. Unknown ids are none of its business.
    pub fn cancel(&self, id: &RequestId) {
        if let Some(ingress) = self.routes.ingress() {
            let _ = ingress.cast(IngressMsg::Cancel(Whom::Id(Arc::clone(id)), CancelReason::Asked));
        }
    }

    /// Admits nothing more and waits until all requests have ended; those that take longer than `within` are cancelled.
    /// Returns whether all ended by themselves.
    pub async fn drain(&self, within: Duration) -> Result<bool, Failure> {
        // An ingress that dies meanwhile comes back knowing it.
        self.routes.note_draining();
        let ingress = self.ingress()?;
        let (reply, drained) = tokio::sync::oneshot::channel();
        let _ = ingress.cast(IngressMsg::Drain(RpcReplyPort::from(reply)));
        tokio::pin!(drained);
        match tokio::time::timeout(within, &mut drained).await {
            Ok(Ok(())) => return Ok(true),
            // The ingress died: what ran died with it.
            Ok(Err(_)) => return Ok(false),
            Err(_) => {}
        }
        let _ = ingress.cast(IngressMsg::CancelAll(CancelReason::Draining));
        let _ = tokio::time::timeout(CANCEL_WITHIN, drained).await;
        Ok(false)
    }

    /// Returns how the ingress stands.
    pub async fn snapshot(&self) -> Result<IngressSnapshot, Failure> {
        self.ask(IngressMsg::Snapshot).await
    }

    /// Returns where a request stands, if it runs.
    pub async fn position(&self, id: &RequestId) -> Result<Option<WalkerPosition>, Failure> {
        let running = self.snapshot().await?.running;
        let Some(request) = running.into_iter().find(|request| request.id == *id) else { return Ok(None) };
        Ok(self.position_of(request.key).await)
    }

    /// Returns where a request stands, if it runs.
    pub async fn position_of(&self, key: RequestKey) -> Option<WalkerPosition> {
        let walker = self.routes.walker(key)?;
        match walker.call(WalkerMsg::Position, Some(ANSWER_WITHIN)).await {
            Ok(CallResult::Success(position)) => Some(position),
            _ => None,
        }
    }

    /// Refuses what could not be served before it takes a place in the queue.
    fn check(&self, request: &Arc<Request>, served: &Served) -> Result<(), Failure> {
        let plan = served.model().plan(request)?;
        let graph = served.graph();
        for walk in plan.begin() {
            let Some(walk) = graph.find_walk(walk.walk.as_str()) else { continue };
            for step in graph.walk_steps(walk) {
                let slot = served.step(step).slot;
                served.pick(slot, RequestKey { id: 0, attempt: 0 }, &self.routes).map_err(|why| {
                    let node = &served.bindings()[slot].node;
                    Failure::new(FailureKind::Unavailable, format!("node {node} is down: {why}"))
                })?;
            }
        }
        Ok(())
    }

    async fn ask<T: Send + 'static>(&self, message: impl FnOnce(RpcReplyPort<T>) -> IngressMsg) -> Result<T, Failure> {
        match self.ingress()?.call(message, Some(ANSWER_WITHIN)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout) => Err(Failure::new(FailureKind::Overloaded, "the ingress is late")),
            Ok(CallResult::SenderError) | Err(_) => Err(unavailable()),
        }
    }

    fn ingress(&self) -> Result<ActorRef<IngressMsg>, Failure> {
        self.routes.ingress().ok_or_else(unavailable)
    }
}

fn unavailable() -> Failure {
    Failure::new(FailureKind::Unavailable, "the server is starting or stopping")
}
