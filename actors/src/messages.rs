//! Every message between actors: who sends it, why, what bounds it, whether it may travel between processes.
//! All are plain data: ids, values and tensor leases; reply ports and client sinks occur only where a message never
//! travels.

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{
    EngineUsage, Failure, Journal, Request, RequestId, RequestKey, Row, RowOutput, RowProgress, StepParams,
    TraceContext, Value, WorkId,
};
use mstar_graph::{AtEnd, ChunkPolicy, OpName, Port, StreamIx};
use mstar_supervisor::Incarnation;
use ractor::RpcReplyPort;
use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;

use crate::client::ClientSink;
use crate::served::Served;
use crate::snapshot::{IngressSnapshot, NodeSnapshot, WalkerPosition};

/// A node's address: its place among the deployment's nodes, the same in every process of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIx(pub u32);

/// An op's place among the ops that its component declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpIx(pub u16);

/// Names a firing within an attempt of a request; the same firing has the same name in every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId {
    /// The partition, by its place in the graph.
    pub partition: u16,
    /// How many walks the partition took before.
    pub walk: u16,
    /// The cursor's number of the firing.
    pub firing: u32,
}

/// What an ingress is sent. Nothing of it travels.
#[derive(Debug)]
pub enum IngressMsg {
    /// From the gateway: serve this. Answered at once: queued or running, or refused. Bound: the queue's limit.
    Submit(Box<Submission>, RpcReplyPort<Result<(), Failure>>),
    /// From a client's stream that was dropped, or from the admin view: end this. Idempotent.
    Cancel(Whom, CancelReason),
    /// From the request's timer: its time is over. One per request.
    Due(RequestKey),
    /// From a walker, as its last message. One per admitted request.
    Ended(RequestKey),
    /// From the runtime, once: admit nothing more, answer when nothing runs.
    Drain(RpcReplyPort<()>),
    /// From the runtime when draining took too long: cancel all that runs or waits.
    CancelAll(CancelReason),
    /// From the admin view.
    Snapshot(RpcReplyPort<IngressSnapshot>),
}

/// A request on its way in.
#[derive(Debug)]
pub struct Submission {
    /// Its key, attempt 0.
    pub key: RequestKey,
    /// What is asked.
    pub request: Arc<Request>,
    /// What serves it.
    pub served: Arc<Served>,
    /// Where its events go.
    pub sink: ClientSink,
    /// When its time is over.
    pub due: Instant,
    /// When it came.
    pub came: Instant,
    /// Its span, which begins before it waits in the queue.
    pub span: Span,
    /// The span's context.
    pub trace: TraceContext,
}

/// Which request is meant.
#[derive(Clone, Debug)]
pub enum Whom {
    /// As the client knows it.
    Id(RequestId),
    /// As the process knows it.
    Key(RequestKey),
}

/// Why a request is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelReason {
    /// The client went away.
    ClientGone,
    /// Somebody asked for it.
    Asked,
    /// The server shuts down.
    Draining,
}

/// What a walker is sent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a mailbox boxes every message")]
pub enum WalkerMsg {
    /// From a node: a step's outcome, after all its items have left the node. One per step sent. Travels.
    StepDone(StepDone),
    /// From the client's stream: there is room again. One per stall.
    ClientTook,
    /// From the ingress: end. Idempotent.
    Cancel(CancelReason),
    /// From the ingress: the request's time is over. One.
    Deadline,
    /// From the supervision's bridge: a node's incarnation is gone, and another is there, is awaited, or will not
    /// come. One per event and walker. Travels.
    NodeReplaced(NodeIx),
    /// From the admin view.
    Position(RpcReplyPort<WalkerPosition>),
}

/// A step's outcome.
#[derive(Debug)]
pub struct StepDone {
    /// The attempt it belongs to.
    pub key: RequestKey,
    /// Which firing.
    pub step: StepId,
    /// The node that computed it.
    pub node: NodeIx,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The rank that computed it.
    pub rank: Arc<str>,
    /// What the op gave, or why the request fails. Outputs that lead to streams only are taken out.
    pub result: Result<RowOutput, Failure>,
    /// Streams whose last chunk went into the step.
    pub ended: SmallVec<[StreamIx; 1]>,
    /// The sequence number after the last item that the step put into each of its streams.
    pub sent: SmallVec<[(StreamIx, u64); 1]>,
    /// Where its time went.
    pub timing: StepTiming,
}

/// Where a step's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTiming {
    /// From its arrival at the node, with all its inputs, to the start of its last batch.
    pub waited: Duration,
    /// In batches.
    pub ran: Duration,
    /// Rows in its last batch.
    pub rows: u32,
}

/// What a node is sent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most messages are steps, and each is in a mailbox of its own")]
pub enum NodeMsg {
    /// From a walker: compute this. Bound: a request has as many steps in flight as its graph allows. Travels.
    Step(Step),
    /// From a walker, before the first step of the stream's producer: expect items. One per stream and attempt.
    /// Items of streams that were never opened here, or of retired attempts, are dropped. Travels.
    OpenStream {
        /// The attempt.
        key: RequestKey,
        /// The stream.
        stream: StreamIx,
        /// How it is cut.
        policy: ChunkPolicy,
        /// What its end looks like.
        at_end: AtEnd,
    },
    /// From a producer's outbox: items of a stream, or none to ask for credit. Bound: the stream's credit. Travels.
    Items(Items),
    /// From a walker: the producer is done. One per stream and attempt. Travels.
    CloseStream {
        /// The attempt.
        key: RequestKey,
        /// The stream.
        stream: StreamIx,
        /// How many items it has in all.
        items: u64,
    },
    /// From a walker: the consumer wants no more. What comes is dropped, so that its producer does not wait for credit.
    /// At most one per stream and attempt. Travels.
    AbandonStream {
        /// The attempt.
        key: RequestKey,
        /// The stream.
        stream: StreamIx,
    },
    /// From a consumer's inbox: items before this one are not kept any more. One per chunk. Travels.
    Credit {
        /// The attempt.
        key: RequestKey,
        /// The stream.
        stream: StreamIx,
        /// How many items were consumed so far.
        consumed: u64,
    },
    /// From the rank: what became of a batch. One per batch.
    Executed(Executed),
    /// From a walker, or from the ingress in its place: forget this attempt and all before it. Idempotent. Travels.
    Retire(RequestKey),
    /// From the node itself, behind what waits in its mailbox: decide now, whether all rows are back or not. At most
    /// one under way.
    Ripen,
    /// From the admin view.
    Snapshot(RpcReplyPort<NodeSnapshot>),
}

/// A step to compute.
#[derive(Clone, Debug)]
pub struct Step {
    /// The attempt it belongs to.
    pub key: RequestKey,
    /// Which firing.
    pub step: StepId,
    /// Which op.
    pub op: OpIx,
    /// What the cursor hands over.
    pub inputs: SmallVec<[(Port, mstar_contract::In); 2]>,
    /// Inputs that take a chunk from the inbox.
    pub stream_inputs: SmallVec<[(Port, StreamIx); 1]>,
    /// Outputs that lead to another node's inbox.
    pub stream_outputs: SmallVec<[StreamOutput; 1]>,
    /// What does not change between the request's steps.
    pub params: Arc<StepParams>,
    /// Names the step's random numbers.
    pub draw: u64,
    /// What a node whose state was lost must redo before.
    pub rebuild: Option<Arc<Journal>>,
    /// When the request's listener runs dry, if anybody listens.
    pub due: Option<Instant>,
    /// The step's span.
    pub trace: TraceContext,
}

/// An output that leads to another node's inbox.
#[derive(Clone, Debug)]
pub struct StreamOutput {
    /// The output.
    pub port: Port,
    /// The stream.
    pub stream: StreamIx,
    /// The consumer.
    pub to: NodeIx,
    /// Sequence number of the first item that the step puts in.
    pub next: u64,
    /// How many items may be under way.
    pub credit: u64,
    /// Whether the values are wanted elsewhere as well.
    pub copied: bool,
}

/// A run of items of a stream.
#[derive(Debug)]
pub struct Items {
    /// The attempt.
    pub key: RequestKey,
    /// The stream.
    pub stream: StreamIx,
    /// The producer, to whom credit goes.
    pub from: NodeIx,
    /// Sequence number of the first item.
    pub first: u64,
    /// The items; none asks for the credit as it stands.
    pub items: Vec<Value>,
}

/// What a rank's compute thread is sent by node actors. Nothing of it travels.
/// Bound, per node: one batch, one reset, and a retire for each admitted request.
#[derive(Debug)]
pub enum DeviceCommand {
    /// Compute a batch.
    Execute(Batch),
    /// Forget an attempt and all before it.
    Retire(NodeIx, RequestKey),
    /// Forget everything: a new incarnation begins.
    Reset(NodeIx, Incarnation),
    /// From the admin view: what does the engine hold?
    Usage(NodeIx, tokio::sync::oneshot::Sender<EngineUsage>),
}

/// A batch on its way to a rank.
#[derive(Debug)]
pub struct Batch {
    /// Whose engine computes it.
    pub node: NodeIx,
    /// The incarnation that sent it.
    pub incarnation: Incarnation,
    /// The rows: of one op, or of ops that share passes.
    pub rows: Vec<Row>,
    /// When it was sent.
    pub sent: Instant,
    /// When the first of its listeners runs dry.
    pub due: Option<Instant>,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Executed {
    /// The incarnation that sent it.
    pub incarnation: Incarnation,
    /// Every row of it.
    pub rows: Vec<RowProgress>,
    /// What the engine holds now.
    pub usage: EngineUsage,
    /// How long it waited for the rank.
    pub waited: Duration,
    /// How long it ran.
    pub ran: Duration,
    /// Set when the engine itself panicked: its rows are lost, its state was reset.
    pub broken: Option<String>,
}

impl ractor::Message for IngressMsg {}
impl ractor::Message for WalkerMsg {}
impl ractor::Message for NodeMsg {}
impl ractor::Message for DeviceCommand {}

// --- impl StepId ---

impl StepId {
    /// Packs the id into one number.
    pub fn packed(self) -> u64 {
        u64::from(self.partition) << 48 | u64::from(self.walk) << 32 | u64::from(self.firing)
    }
}

// --- impl DeviceCommand ---

impl DeviceCommand {
    /// Returns whose engine is meant.
    pub fn node(&self) -> NodeIx {
        match self {
            Self::Execute(batch) => batch.node,
            Self::Retire(node, _) | Self::Reset(node, _) | Self::Usage(node, _) => *node,
        }
    }
}

// --- impl Step ---

impl Step {
    /// Returns the row that the step becomes at its node.
    pub(crate) fn row(&mut self, work: WorkId, op: OpName) -> Row {
        Row {
            work,
            key: self.key,
            op,
            inputs: std::mem::take(&mut self.inputs),
            params: Arc::clone(&self.params),
            draw: self.draw,
            rebuild: self.rebuild.take(),
        }
    }
}

// --- impl CancelReason ---

impl CancelReason {
    /// Returns the failure that the client is told, if it still listens.
    pub fn failure(self) -> Failure {
        use mstar_contract::FailureKind::{Cancelled, Unavailable};
        match self {
            Self::ClientGone => Failure::new(Cancelled, "the client went away"),
            Self::Asked => Failure::new(Cancelled, "the request was cancelled"),
            Self::Draining => Failure::new(Unavailable, "the server is shutting down"),
        }
    }
}
