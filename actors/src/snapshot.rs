//! What the admin views show of the actors.

use mstar_contract::{EngineUsage, RequestId, RequestKey};
use mstar_graph::{LoopName, ModelId, PartitionName, StepName, WalkName};
use mstar_supervisor::Incarnation;

/// How the ingress stands.
#[derive(Clone, Debug, Default)]
pub struct IngressSnapshot {
    /// Requests that run, in no order.
    pub running: Vec<RunningRequest>,
    /// Requests that wait for their turn.
    pub queued: usize,
    /// Most that may run.
    pub max_running: usize,
    /// Most that may wait.
    pub max_queued: usize,
    /// Whether nothing is admitted any more.
    pub draining: bool,
    /// Requests admitted since the start.
    pub admitted: u64,
    /// Requests refused since the start.
    pub refused: u64,
}

/// A request that runs.
#[derive(Clone, Debug)]
pub struct RunningRequest {
    /// As the process knows it.
    pub key: RequestKey,
    /// As the client knows it.
    pub id: RequestId,
    /// Its model.
    pub model: ModelId,
}

/// How a node actor stands.
#[derive(Clone, Debug)]
pub struct NodeSnapshot {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// Steps that it holds: waiting for a chunk, queued, computing, or withheld for credit.
    pub steps: usize,
    /// Steps queued for a batch.
    pub queued: usize,
    /// Whether a batch is under way.
    pub busy: bool,
    /// Streams with a buffer in its inbox.
    pub streams: usize,
    /// Items in those buffers.
    pub buffered: usize,
    /// Items in its outbox.
    pub outgoing: usize,
    /// Requests it keeps anything for.
    pub requests: usize,
    /// What its engine held after the last batch or retirement it reported.
    pub usage: EngineUsage,
}

/// Where a request stands.
#[derive(Clone, Debug)]
pub struct WalkerPosition {
    /// As the process knows it, with the attempt it is in.
    pub key: RequestKey,
    /// As the client knows it.
    pub id: RequestId,
    /// Its partitions that have not ended.
    pub partitions: Vec<PartitionPosition>,
    /// Emissions that wait for the client.
    pub held: usize,
}

/// Where a partition of a request stands.
#[derive(Clone, Debug)]
pub struct PartitionPosition {
    /// Its name.
    pub partition: PartitionName,
    /// The walk it takes.
    pub walk: WalkName,
    /// Loops under way with their iteration, counted from zero.
    pub loops: Vec<(LoopName, u32)>,
    /// Steps in flight, with the node actor they are at.
    pub steps: Vec<(StepName, String)>,
}
