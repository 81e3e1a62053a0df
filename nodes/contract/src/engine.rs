//! What a rank drives: the machinery around a component's compute.

use std::sync::Arc;
use std::time::Duration;

use mstar_graph::OpName;
use mstar_kernels::Cx;

use crate::{Gauge, RequestKey, Row, RowError, RowOutput, WorkId};

/// The machinery around a component's compute, owned by one rank's compute thread.
pub trait Engine: Send {
    /// Returns whether a row may be executed now. Reserves nothing.
    fn room(&self, op: &OpName, row: &Row) -> Room;

    /// Returns how many tokens of work a row is, for a batch's token budget.
    fn tokens(&self, _op: &OpName, _row: &Row) -> usize {
        1
    }

    /// Executes a batch of one op. Every row is answered exactly once.
    fn execute(&mut self, op: &OpName, rows: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress>;

    /// Forgets a request's attempt and all earlier ones, with all it holds. Idempotent.
    fn retire(&mut self, key: RequestKey);

    /// Forgets every request: the node's actor begins a new incarnation.
    fn reset(&mut self);

    /// Returns what it holds.
    fn usage(&self) -> EngineUsage;

    /// Returns how long the last execution pretends to have taken; only simulated engines do.
    fn simulated(&self) -> Option<Duration> {
        None
    }
}

/// What a running engine may use.
pub struct ExecuteCx<'a> {
    /// The rank's kernels.
    pub cx: &'a Cx,
    /// Counts the tensors on the rank.
    pub gauge: &'a Arc<Gauge>,
}

/// Whether a row may be executed.
#[derive(Debug)]
pub enum Room {
    /// Now.
    Ready,
    /// When others have ended: it waits.
    Later,
    /// Never: it does not fit into this deployment.
    Never(RowError),
}

/// What became of a row.
#[derive(Debug)]
pub enum RowProgress {
    /// It is done.
    Done(WorkId, Result<RowOutput, RowError>),
    /// A part of it is done; it goes into a next batch as it is now.
    More(Row),
    /// It could not begin for want of room; it goes into a later batch.
    Waiting(Row),
}

/// What an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// KV pages in use.
    pub kv_pages_used: usize,
    /// KV pages in all.
    pub kv_pages: usize,
    /// Sequences or states kept for requests.
    pub sequences: usize,
}
