//! A walker: one request from its admission to its end. It asks the plan for walks, steps through them with cursors,
//! sends steps to node actors and their outcomes back into the cursors, emits to the client, and after a loss does
//! what [`recovery`] says.

mod draw;
mod emission;
mod flight;
mod journal;
mod partition;
mod playout;
mod recovery;
mod slots;

use std::sync::Arc;

use mstar_contract::{ClientEvent, Failure, FailureKind, Kept, Plan, Request, RequestKey, Summary, TraceContext};
use mstar_graph::CursorError;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::Span;

use crate::client::ClientSink;
use crate::faults::Faults;
use crate::ingress::outcome_name;
use crate::messages::{IngressMsg, NodeMsg, StepDone, WalkerMsg};
use crate::metrics::{ATTEMPTS, REQUESTS};
use crate::routes::Routes;
use crate::served::Served;
use crate::snapshot::WalkerPosition;
use crate::trace;
use emission::Emissions;
use flight::Flights;
use partition::{Partition, Streams};
use playout::Playout;
use slots::Slots;

/// The actor of a request.
pub(crate) struct Walker;

/// What a walker is made of.
pub(crate) struct WalkerArgs {
    pub(crate) key: RequestKey,
    pub(crate) request: Arc<Request>,
    pub(crate) served: Arc<Served>,
    pub(crate) sink: ClientSink,
    pub(crate) routes: Arc<Routes>,
    pub(crate) faults: Arc<dyn Faults>,
    /// The request's span, and its context.
    pub(crate) span: Span,
    pub(crate) trace: TraceContext,
}

/// What a walker keeps.
pub(crate) struct WalkerState {
    key: RequestKey,
    request: Arc<Request>,
    served: Arc<Served>,
    sink: ClientSink,
    routes: Arc<Routes>,
    faults: Arc<dyn Faults>,
    plan: Box<dyn Plan>,
    /// By their place in the graph; those that do not take part, or are over, are empty.
    partitions: Vec<Option<Partition>>,
    kept: Kept,
    streams: Streams,
    slots: Slots,
    flights: Flights,
    emissions: Emissions,
    playout: Playout,
    summary: Summary,
    span: Span,
    trace: TraceContext,
    over: bool,
}

/// What a handler's work came to: the request goes on, or fails.
pub(crate) type Outcome = Result<(), Failure>;

// --- impl Walker ---

impl Actor for Walker {
    type Msg = WalkerMsg;
    type State = WalkerState;
    type Arguments = WalkerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<WalkerMsg>,
        args: WalkerArgs,
    ) -> Result<WalkerState, ActorProcessingErr> {
        let state = WalkerState::new(args)?;
        state.routes.add_walker(state.key, myself);
        Ok(state)
    }

    async fn post_start(&self, myself: ActorRef<WalkerMsg>, state: &mut WalkerState) -> Result<(), ActorProcessingErr> {
        let outcome = state.begin();
        state.conclude(&myself, outcome);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<WalkerMsg>,
        message: WalkerMsg,
        state: &mut WalkerState,
    ) -> Result<(), ActorProcessingErr> {
        if state.over {
            return Ok(());
        }
        let outcome = match message {
            WalkerMsg::StepDone(done) => state.step_done(done),
            WalkerMsg::ClientTook => state.client_took(),
            WalkerMsg::Cancel(reason) => Err(reason.failure()),
            WalkerMsg::Deadline => Err(Failure::new(FailureKind::Deadline, "the request's time is over")),
            WalkerMsg::NodeReplaced(node) => state.replaced(node),
            WalkerMsg::Position(reply) => {
                let _ = reply.send(state.position());
                Ok(())
            }
        };
        state.conclude(&myself, outcome);
        Ok(())
    }
}

// --- impl WalkerState ---

impl WalkerState {
    fn new(args: WalkerArgs) -> Result<Self, Failure> {
        let WalkerArgs { key, request, served, sink, routes, faults, span, trace } = args;
        let plan = served.model().plan(&request)?;
        Ok(Self {
            partitions: served.graph().partitions().map(|_| None).collect(),
            kept: Kept::new(),
            streams: Streams::new(&served),
            slots: Slots::new(&served),
            flights: Flights::default(),
            emissions: Emissions::default(),
            playout: Playout::default(),
            summary: Summary::default(),
            over: false,
            key,
            request,
            served,
            sink,
            routes,
            faults,
            plan,
            span,
            trace,
        })
    }

    /// Begins an attempt: opens the streams, then takes every partition's first walk.
    fn begin(&mut self) -> Outcome {
        let walks = self.plan.begin();
        let graph = Arc::clone(self.served.graph());
        self.streams.take_part(&graph, &self.served, walks.iter().map(|walk| &walk.partition));
        self.open_streams()?;
        let attempt = self.key.attempt;
        for walk in walks {
            if self.key.attempt == attempt {
                self.take_walk(walk, 0)?;
            }
        }
        Ok(())
    }

    fn step_done(&mut self, done: StepDone) -> Outcome {
        if done.key != self.key {
            return Ok(());
        }
        let Some(flight) = self.flights.land(done.step, done.incarnation) else { return Ok(()) };
        flight.record(&done);
        let output = done.result?;
        for (stream, next) in done.sent {
            self.streams.sent(stream, next);
        }
        done.ended.iter().for_each(|stream| self.streams.ended(*stream));
        self.summary.usage.add(output.usage);
        self.summary.finish = output.finish.or(self.summary.finish);
        self.slots.record(&self.served, &flight, output.sampled);
        self.land(flight, output, !done.ended.is_empty())
    }

    fn client_took(&mut self) -> Outcome {
        self.emissions.flush(&self.sink);
        self.release_held()
    }

    /// Runs the request again after a loss that nothing cheaper repairs.
    fn again(&mut self) -> Outcome {
        self.retire();
        self.key.attempt += 1;
        metrics::counter!(ATTEMPTS).increment(1);
        self.span.record(trace::key::ATTEMPT, self.key.attempt);
        self.partitions.iter_mut().for_each(|partition| *partition = None);
        self.kept.clear();
        self.flights.clear();
        self.slots.forget();
        self.streams = Streams::new(&self.served);
        self.summary = Summary::default();
        self.emissions.again();
        self.begin()
    }

    /// Ends the request if it failed or has nothing left to do.
    fn conclude(&mut self, myself: &ActorRef<WalkerMsg>, outcome: Outcome) {
        let event = match outcome {
            Err(failure) => ClientEvent::Failed(failure),
            Ok(()) if self.finished() => ClientEvent::Done(self.summary.clone()),
            Ok(()) => return,
        };
        let name = match &event {
            ClientEvent::Failed(failure) => {
                tracing::debug!(request.id = &*self.request.id, %failure, "request failed");
                outcome_name(failure.kind)
            }
            _ => "done",
        };
        let model = self.request.model.as_str().to_owned();
        metrics::counter!(REQUESTS, "model" => model, "outcome" => name).increment(1);
        self.span.record(trace::key::OUTCOME, name);
        self.over = true;
        self.flights.clear();
        self.partitions.clear();
        self.emissions.end(&self.sink, event);
        self.retire();
        self.routes.remove_walker(self.key);
        if let Some(ingress) = self.routes.ingress() {
            let _ = ingress.cast(IngressMsg::Ended(self.key));
        }
        self.span = Span::none();
        myself.stop(None);
    }

    /// Lets every node that the attempt touched forget it.
    fn retire(&mut self) {
        for node in self.slots.touched() {
            self.routes.send(node, NodeMsg::Retire(self.key));
        }
    }

    fn finished(&self) -> bool {
        self.partitions.iter().all(Option::is_none) && self.emissions.held() == 0
    }

    fn position(&self) -> WalkerPosition {
        let partitions = self.partitions.iter().flatten();
        WalkerPosition {
            key: self.key,
            id: Arc::clone(&self.request.id),
            partitions: partitions.map(|partition| partition.position(&self.flights, &self.routes)).collect(),
            held: self.emissions.held(),
        }
    }
}

/// A cursor that complains: the request asks for too many iterations, or the plan or an op breaks its promise.
pub(crate) fn complaint(error: &CursorError) -> Failure {
    match error {
        CursorError::BoundOutOfRange { name, .. } => {
            Failure { field: Some(name.clone()), ..Failure::new(FailureKind::Invalid, error.to_string()) }
        }
        _ => Failure::new(FailureKind::Internal, error.to_string()),
    }
}
