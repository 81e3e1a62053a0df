//! A node actor: steps and stream items in, batches to its rank, outcomes to walkers, items to other nodes. Its handlers
//! decide nothing: [`Inbox`] knows streams, [`Batcher`] batches, [`Outbox`] credit, [`Works`] the steps it holds.

mod batcher;
mod inbox;
mod outbox;
mod works;

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{EngineUsage, OpDecl, Recovery, RequestKey, Row, RowError, RowOutput, RowProgress, WorkId};
use mstar_supervisor::{ChildSpec, Incarnation, StartError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;

pub use batcher::BatchLimits;
use batcher::{Batcher, Decision, Ticket};
use inbox::{CreditNote, Inbox};
use outbox::{Outbox, Sending};
use works::{Gone, Works};

use crate::device::DeviceHandle;
use crate::faults::{AFTER_EXECUTE, BEFORE_EXECUTE, Faults, NoFaults, ON_ITEMS, pass};
use crate::messages::{Batch, DeviceCommand, Executed, Items, NodeIx, NodeMsg, Step, WalkerMsg};
use crate::metrics::NodeMetrics;
use crate::routes::Routes;
use crate::snapshot::NodeSnapshot;
use crate::trace;

/// Everything a node actor is made of. Each of its lives gets a clone.
#[derive(Clone)]
pub struct NodeArgs {
    /// Its address.
    pub ix: NodeIx,
    /// Its name, for people; unique among the supervisor's children.
    pub name: Arc<str>,
    /// Its component's ops.
    pub ops: Arc<[OpDecl]>,
    /// What its walkers do when its state is lost.
    pub recovery: Recovery,
    /// The bounds of its batches.
    pub limits: BatchLimits,
    /// The rank that has its engine.
    pub device: DeviceHandle,
    /// Where messages go.
    pub routes: Arc<Routes>,
    /// Where it fails on purpose.
    pub faults: Arc<dyn Faults>,
}

/// The actor of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeActor;

/// What a node actor keeps for one life.
pub struct NodeState {
    args: NodeArgs,
    incarnation: Incarnation,
    works: Works,
    inbox: Inbox,
    batcher: Batcher,
    outbox: Outbox,
    metrics: NodeMetrics,
    running: Option<Running>,
    usage: EngineUsage,
    /// A `Ripen` is under way.
    ripening: bool,
}

/// The batch under way.
struct Running {
    rows: usize,
    span: Span,
}

/// An engine or a rank let its node down: the actor ends, and its supervisor starts it anew.
#[derive(Debug, thiserror::Error)]
#[error("the engine broke: {0}")]
struct EngineBroke(String);

/// Between two looks whether the rows that are waited for are back, once they take long: no timer is finer.
const PAUSE: Duration = Duration::from_millis(1);

// --- impl NodeArgs ---

impl NodeArgs {
    /// Returns arguments with default limits, never failing on purpose.
    pub fn new(ix: NodeIx, ops: Arc<[OpDecl]>, recovery: Recovery, device: DeviceHandle, routes: Arc<Routes>) -> Self {
        let name = routes.name(ix).into();
        Self { ix, name, ops, recovery, limits: BatchLimits::default(), device, routes, faults: Arc::new(NoFaults) }
    }

    /// Returns how a supervisor starts the node. The child's name is the node's.
    pub fn child(self) -> ChildSpec {
        let name = self.name.to_string();
        ChildSpec::new(name, move |incarnation, supervisor| {
            let args = self.clone();
            async move {
                let spawned = Actor::spawn_linked(None, NodeActor, (args, incarnation), supervisor).await;
                spawned.map(|(actor, _)| actor.get_cell()).map_err(StartError::from)
            }
        })
    }
}

// --- impl NodeActor ---

impl Actor for NodeActor {
    type Msg = NodeMsg;
    type State = NodeState;
    type Arguments = (NodeArgs, Incarnation);

    async fn pre_start(
        &self,
        _: ActorRef<NodeMsg>,
        (args, incarnation): (NodeArgs, Incarnation),
    ) -> Result<NodeState, ActorProcessingErr> {
        args.device.send(DeviceCommand::Reset(args.ix, incarnation));
        args.routes.progress(args.ix).set_waiting(0);
        Ok(NodeState::new(args, incarnation))
    }

    async fn handle(
        &self,
        myself: ActorRef<NodeMsg>,
        message: NodeMsg,
        state: &mut NodeState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NodeMsg::Step(step) => state.step(step),
            NodeMsg::OpenStream { key, stream, policy, at_end } => state.inbox.open(key, stream, policy, at_end),
            NodeMsg::Items(items) => state.items(items),
            NodeMsg::CloseStream { key, stream, items } => {
                state.inbox.close(key, stream, items);
                state.take_ready(key);
            }
            NodeMsg::AbandonStream { key, stream } => {
                state.inbox.abandon(key, stream).into_iter().for_each(|note| state.give_credit(note));
            }
            NodeMsg::Credit { key, stream, consumed } => {
                let sending = state.outbox.credit(key, stream, consumed);
                state.send(sending);
            }
            NodeMsg::Executed(executed) => state.executed(executed)?,
            NodeMsg::Retire(key) => state.retire(key),
            NodeMsg::Ripen => {
                // Everybody who has something for this node comes before it asks itself again.
                if state.batcher.expects() {
                    tokio::task::yield_now().await;
                }
                state.ripening = false;
                state.batcher.ripen(Instant::now());
            }
            NodeMsg::Snapshot(reply) => {
                let _ = reply.send(state.snapshot());
            }
        }
        state.pump(&myself);
        Ok(())
    }
}

// --- impl NodeState ---

impl Drop for NodeState {
    /// However a life ends: its engine keeps nothing for requests that will rebuild what they had, or fail.
    fn drop(&mut self) {
        self.args.device.send(DeviceCommand::Reset(self.args.ix, self.incarnation));
    }
}

impl NodeState {
    fn new(args: NodeArgs, incarnation: Incarnation) -> Self {
        Self {
            works: Works::new(args.ix, incarnation, Arc::clone(args.device.name()), Arc::clone(&args.ops)),
            inbox: Inbox::default(),
            batcher: Batcher::new(&args.ops, args.limits),
            outbox: Outbox::new(args.ix),
            metrics: NodeMetrics::new(&args.name, &args.ops),
            running: None,
            usage: EngineUsage::default(),
            ripening: false,
            args,
            incarnation,
        }
    }

    fn step(&mut self, mut step: Step) {
        let key = step.key;
        let ports = std::mem::take(&mut step.stream_inputs);
        if ports.is_empty() {
            let (ticket, row) = self.works.queue(step, Instant::now());
            self.queue(ticket, row);
            return;
        }
        let span = trace::chunk(step.trace, &self.args.name);
        let work = self.works.wait(step, span, Instant::now());
        self.batcher.unexpect(key);
        if self.inbox.wait(key, work, ports) {
            self.take_ready(key);
        }
        // Else the step is of a stream that was never opened in this life: its walker runs the request again.
    }

    fn queue(&mut self, ticket: Ticket, row: Row) {
        self.batcher.push(ticket, &self.args.ops[usize::from(ticket.op.0)], row);
    }

    fn items(&mut self, items: Items) {
        pass(&self.args.faults, ON_ITEMS, &self.args.name);
        let key = items.key;
        if let Some(note) = self.inbox.items(items) {
            self.give_credit(note);
        }
        self.take_ready(key);
    }

    /// Queues the steps of a request whose chunks are there.
    fn take_ready(&mut self, key: RequestKey) {
        while let Some(chunked) = self.inbox.ready(key) {
            chunked.credit.into_iter().for_each(|note| self.give_credit(note));
            let ready = self.works.chunked(chunked.work, chunked.inputs, chunked.ended, Instant::now());
            if let Some((ticket, row)) = ready {
                self.queue(ticket, row);
            }
        }
    }

    fn give_credit(&self, note: CreditNote) {
        let CreditNote { producer, key, stream, consumed } = note;
        self.args.routes.send(producer, NodeMsg::Credit { key, stream, consumed });
    }

    /// Sends the next batch to the rank, if it is time.
    fn pump(&mut self, myself: &ActorRef<NodeMsg>) {
        let decision = self.batcher.decide();
        match decision {
            Decision::Idle => {}
            Decision::Wait if self.ripening => {}
            Decision::Wait if self.batcher.in_a_hurry() => self.ripening = myself.cast(NodeMsg::Ripen).is_ok(),
            Decision::Wait => {
                self.ripening = true;
                myself.send_after(PAUSE, || NodeMsg::Ripen);
            }
            Decision::Run(rows, due) => self.execute(rows, due),
        }
        // What waits for a chunk, for room or for credit waits for others: a node is not stuck for that.
        let computing = self.running.as_ref().map_or(0, |running| running.rows);
        self.args.routes.progress(self.args.ix).set_waiting((self.batcher.runnable() + computing) as u64);
    }

    fn execute(&mut self, rows: Vec<Row>, due: Option<Instant>) {
        pass(&self.args.faults, BEFORE_EXECUTE, &self.args.name);
        let now = Instant::now();
        let count = rows.len();
        rows.iter().for_each(|row| self.works.run(row.work, count, now));
        let contexts = rows.iter().filter_map(|row| self.works.trace(row.work));
        let span = trace::batch(contexts, &self.args.name, &rows);
        self.running = Some(Running { rows: count, span });
        self.metrics.batch(&rows);
        let batch = Batch { node: self.args.ix, incarnation: self.incarnation, rows, sent: now, due };
        self.args.device.send(DeviceCommand::Execute(batch));
    }

    fn executed(&mut self, executed: Executed) -> Result<(), EngineBroke> {
        if executed.incarnation != self.incarnation {
            return Ok(());
        }
        let Some(Running { span, .. }) = self.running.take() else { return Ok(()) };
        pass(&self.args.faults, AFTER_EXECUTE, &self.args.name);
        let Executed { rows, usage, waited, ran, broken, .. } = executed;
        if let Some(why) = broken {
            return Err(EngineBroke(why));
        }
        if !span.is_none() {
            span.record(trace::key::RANK, &**self.args.device.name());
            span.record(trace::key::INCARNATION, self.incarnation.0);
            span.record(trace::key::WAIT_US, trace::micros(waited));
            span.record(trace::key::RUN_US, trace::micros(ran));
        }
        self.metrics.batch_seconds.record(ran.as_secs_f64());
        self.note_usage(usage);
        self.args.routes.progress(self.args.ix).tick();

        let mut back: SmallVec<[RequestKey; 16]> = SmallVec::new();
        for progress in rows {
            match progress {
                RowProgress::Done(work, result) => back.extend(self.outcome(work, result, ran)),
                RowProgress::More(row) => {
                    if let Some(ticket) = self.works.again(row.work, ran) {
                        self.batcher.push_more(ticket, row);
                    }
                }
                RowProgress::Waiting(row) => {
                    if let Some(ticket) = self.works.again(row.work, ran) {
                        self.batcher.park(ticket, row);
                    }
                }
            }
        }
        self.batcher.finished(back.into_iter(), ran, Instant::now());
        Ok(())
    }

    /// Hands over what came of a row. Returns the request when it is likely to send another row at once.
    fn outcome(&mut self, work: WorkId, result: Result<RowOutput, RowError>, ran: Duration) -> Option<RequestKey> {
        let goes_on = result.as_ref().is_ok_and(|output| output.stops.is_empty() && output.finish.is_none());
        let done = self.works.done(work, result, ran)?;
        self.metrics.steps.increment(1);
        self.metrics.wait_seconds.record(done.waited.as_secs_f64());
        let key = done.key;
        for (output, items) in done.streams {
            self.metrics.items.increment(items.len() as u64);
            let sending = self.outbox.put(key, work, &output, items);
            self.send(sending);
        }
        self.report(work);
        goes_on.then_some(key)
    }

    fn send(&mut self, sending: Sending) {
        for (to, items) in sending.runs {
            self.args.routes.send(to, NodeMsg::Items(items));
        }
        for work in sending.left {
            self.works.left(work);
            self.report(work);
        }
    }

    /// Tells the walker of a step whose items have all left.
    fn report(&mut self, work: WorkId) {
        if let Some(done) = self.works.take_reportable(work) {
            self.args.routes.tell(done.key, WalkerMsg::StepDone(done));
        }
    }

    fn retire(&mut self, key: RequestKey) {
        self.inbox.retire(key);
        self.outbox.retire(key);
        let Some(gone) = self.works.retire(key) else { return };
        if gone == Gone::Queued {
            self.batcher.retire(key);
        } else {
            self.batcher.unexpect(key);
        }
        self.args.device.send(DeviceCommand::Retire(self.args.ix, key));
        self.batcher.room_made();
    }

    fn note_usage(&mut self, usage: EngineUsage) {
        if usage.kv_pages_used < self.usage.kv_pages_used || usage.sequences < self.usage.sequences {
            self.batcher.room_made();
        }
        self.usage = usage;
        self.metrics.usage(&usage);
    }

    fn snapshot(&self) -> NodeSnapshot {
        let (streams, buffered) = self.inbox.held();
        NodeSnapshot {
            name: self.args.name.to_string(),
            incarnation: self.incarnation,
            steps: self.works.count(),
            queued: self.batcher.queued(),
            busy: self.batcher.busy(),
            streams,
            buffered,
            outgoing: self.outbox.held(),
            requests: self.works.requests(),
            usage: self.usage,
        }
    }
}
