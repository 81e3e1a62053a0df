//! Spans: their names and keys, and how they hang together. A request is one trace: `request` -> `walk` -> `step`, and
//! `chunk` under the step that consumes it; a `batch` is a trace of its own, linked to the steps in it. The context rides
//! in every message; a trace that is not sampled costs no span at all.
//!
//! All spans have the target [`TARGET`]: a layer that exports them lets `mstar` pass down to `debug`, and nothing of
//! `ractor`.

use std::time::Duration;

use mstar_contract::{Row, TraceContext};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::{Level, Span, field, span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of all spans of the runtime.
pub const TARGET: &str = "mstar";
/// A request, from its admission to its end.
pub const REQUEST: &str = "request";
/// A walk of a partition.
pub const WALK: &str = "walk";
/// A step, from its sending to its outcome.
pub const STEP: &str = "step";
/// A chunk of a stream, from its step's arrival to its being handed over.
pub const CHUNK: &str = "chunk";
/// A batch on a rank, linked to its steps.
pub const BATCH: &str = "batch";

/// Keys of the spans' fields.
pub mod key {
    /// The client's id of a request.
    pub const REQUEST_ID: &str = "request.id";
    /// How a request ended.
    pub const OUTCOME: &str = "outcome";
    /// The node actor that a step went to.
    pub const NODE: &str = "node";
    /// The life of a node actor.
    pub const INCARNATION: &str = "incarnation";
    /// The rank that computed.
    pub const RANK: &str = "rank";
    /// Rows in the batch.
    pub const ROWS: &str = "rows";
    /// Time in queues.
    pub const WAIT_US: &str = "wait_us";
    /// Time in batches.
    pub const RUN_US: &str = "run_us";
    /// Items of a chunk.
    pub const ITEMS: &str = "items";
    /// How many times a request ran before.
    pub const ATTEMPT: &str = "attempt";
}

/// Begins the span of a request.
pub(crate) fn request(parent: TraceContext, id: &str, model: &str) -> Span {
    if !parent.sampled {
        return Span::none();
    }
    let span = span!(target: TARGET, parent: None, Level::INFO, REQUEST, request.id = id, model = model,
        outcome = field::Empty, attempt = field::Empty);
    under(span, parent)
}

/// Begins the span of a walk.
pub(crate) fn walk(parent: TraceContext, walk: &str, partition: &str) -> Span {
    if !parent.sampled {
        return Span::none();
    }
    let span = span!(target: TARGET, parent: None, Level::INFO, WALK, walk = walk, partition = partition);
    under(span, parent)
}

/// What the span of a step says of it when it begins.
pub(crate) struct StepLabels<'a> {
    pub(crate) node: &'a str,
    pub(crate) op: &'a str,
    pub(crate) step: &'a str,
    pub(crate) iteration: u32,
    /// Whether the step stands in a loop.
    pub(crate) looped: bool,
}

/// Begins the span of a step: at debug level inside loops, else at info.
pub(crate) fn step(parent: TraceContext, labels: &StepLabels<'_>) -> Span {
    if !parent.sampled {
        return Span::none();
    }
    let StepLabels { node, op, step, iteration, looped } = labels;
    let span = if *looped {
        span!(target: TARGET, parent: None, Level::DEBUG, STEP, node = node, op = op, step = step,
            iteration = iteration, rank = field::Empty, incarnation = field::Empty, rows = field::Empty,
            wait_us = field::Empty, run_us = field::Empty)
    } else {
        span!(target: TARGET, parent: None, Level::INFO, STEP, node = node, op = op, step = step,
            rank = field::Empty, incarnation = field::Empty, rows = field::Empty, wait_us = field::Empty,
            run_us = field::Empty)
    };
    under(span, parent)
}

/// Begins the span of a chunk.
pub(crate) fn chunk(parent: TraceContext, node: &str) -> Span {
    if !parent.sampled {
        return Span::none();
    }
    let span = span!(target: TARGET, parent: None, Level::DEBUG, CHUNK, node = node, items = field::Empty);
    under(span, parent)
}

/// Begins the span of a batch, linked to the steps in it that are sampled.
pub(crate) fn batch<'a>(steps: impl Iterator<Item = &'a TraceContext>, node: &str, rows: &[Row]) -> Span {
    let mut span = Span::none();
    for step in steps.filter(|step| step.sampled && step.is_present()) {
        if span.is_none() {
            let (op, rows) = (ops(rows), rows.len());
            span = span!(target: TARGET, parent: None, Level::DEBUG, BATCH, node = node, op = op, rows = rows,
                rank = field::Empty, incarnation = field::Empty, wait_us = field::Empty, run_us = field::Empty);
        }
        span.add_link(remote(*step));
    }
    span
}

/// Names the ops of a batch's rows, in alphabetical order: few, whatever the rows.
fn ops(rows: &[Row]) -> String {
    let mut ops: Vec<&str> = rows.iter().map(|row| row.op.as_str()).collect();
    ops.sort_unstable();
    ops.dedup();
    ops.join("+")
}

/// Returns the context that messages sent on behalf of a span carry; that of its parent when it has no span.
pub(crate) fn context(span: &Span, parent: TraceContext) -> TraceContext {
    if span.is_none() {
        return parent;
    }
    let context = span.context();
    let here = context.span().span_context().clone();
    if !here.is_valid() {
        return parent;
    }
    TraceContext {
        trace_id: u128::from_be_bytes(here.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(here.span_id().to_bytes()),
        sampled: here.is_sampled(),
    }
}

/// Returns a time as spans show it.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn under(span: Span, parent: TraceContext) -> Span {
    if parent.is_present() {
        let context = opentelemetry::Context::new().with_remote_span_context(remote(parent));
        // It fails only where no layer exports spans: nothing is lost then.
        let _ = span.set_parent(context);
    }
    span
}

fn remote(context: TraceContext) -> SpanContext {
    let TraceContext { trace_id, span_id, sampled } = context;
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, TraceState::default())
}
