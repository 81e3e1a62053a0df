//! The author's side of a stateless or lightly stateful node.

use std::sync::Arc;

use mstar_graph::OpName;
use mstar_kernels::{Cx, Tensor};

use crate::{Gauge, RequestKey, Row, RowError, RowOutput, TensorRef, Value};

/// Computes batches of rows: the author's code of a node without KV.
pub trait Compute: Send {
    /// Computes one op for a batch and returns exactly one result per row, in order.
    ///
    /// A row's result must not depend on the other rows. A panic is caught by the engine, which then tries the rows
    /// one by one: an op that keeps state changes it only when it can no longer panic.
    fn run(&mut self, op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>>;

    /// Forgets what it keeps for a request, if it keeps anything. Called once or more per request.
    fn retire(&mut self, _key: RequestKey) {}

    /// Forgets what it keeps for every request.
    fn reset(&mut self) {}

    /// Returns for how many requests it keeps something: zero when all are retired.
    fn held(&self) -> usize {
        0
    }
}

/// What a running op may use.
pub struct ComputeCx<'a> {
    /// The rank's kernels.
    pub cx: &'a Cx,
    /// Counts the tensors on the rank.
    pub gauge: &'a Arc<Gauge>,
    /// As [`crate::ExecuteCx::yields`].
    pub yields: &'a dyn Fn(),
}

impl ComputeCx<'_> {
    /// Lets other nodes of the rank compute, if it is their turn. An op that takes longer than some ten milliseconds calls
    /// it between its pieces, or steps of streams would wait for all of it.
    pub fn yield_now(&self) {
        (self.yields)();
    }

    /// Leases a tensor on this rank as a value.
    pub fn value(&self, tensor: Tensor) -> Value {
        Value::Tensor(TensorRef::lease(tensor, self.gauge))
    }

    /// Leases samples on this rank as an audio value.
    pub fn audio(&self, samples: Tensor, sample_rate: u32) -> Value {
        Value::audio(TensorRef::lease(samples, self.gauge), sample_rate)
    }
}
