//! What a rank drives: the machinery around a component's compute.

use std::sync::Arc;
use std::time::Duration;

use mstar_kernels::Cx;

use crate::{Gauge, RequestKey, Row, RowError, RowOutput, WorkId};

/// The machinery around a component's compute, owned by one rank's compute thread.
pub trait Engine: Send {
    /// Executes a batch. Its rows are of one op, or of several that share passes ([`crate::OpDecl::shares_passes`]), and
    /// come in the order in which they are to be served. Every row is answered exactly once.
    fn execute(&mut self, rows: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress>;

    /// Notes how long the last execution took, as its rank measured it: engines have no clock of their own.
    fn timed(&mut self, _took: Duration) {}

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
    /// Lets other nodes of the rank compute, if it is their turn; returns when it is this one's again.
    pub yields: &'a dyn Fn(),
}

/// What became of a row.
#[derive(Debug)]
pub enum RowProgress {
    /// It is done.
    Done(WorkId, Result<RowOutput, RowError>),
    /// A part of it is done; it goes into a next batch as it is now.
    More(Row),
    /// It could not begin for want of room; it goes into a batch when others have ended.
    Waiting(Row),
}

/// What an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// KV pages that sequences hold.
    pub kv_pages_used: usize,
    /// KV pages that nobody holds, but that are known to hold how a sequence begins; they are given away when others
    /// are short.
    pub kv_pages_cached: usize,
    /// KV pages in all.
    pub kv_pages: usize,
    /// Sequences or states kept for requests.
    pub sequences: usize,
    /// Tokens that sequences began with, so far.
    pub prompt_tokens: u64,
    /// Of these, tokens that were found in cached or shared pages.
    pub reused_tokens: u64,
}
