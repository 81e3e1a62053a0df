//! Metrics: their names, and handles that cost no look-up where they are moved per step.

use metrics::{Counter, Gauge, Histogram};
use mstar_contract::{EngineUsage, OpDecl, Row};
use mstar_graph::OpName;

/// Requests, by model and outcome.
pub const REQUESTS: &str = "mstar_requests_total";
/// Requests that run.
pub const RUNNING: &str = "mstar_requests_running";
/// Requests that wait for admission.
pub const QUEUED: &str = "mstar_requests_queued";
/// Requests run again after a loss.
pub const ATTEMPTS: &str = "mstar_request_reruns_total";
/// Seconds from a request's arrival to its end, by model.
pub const REQUEST_SECONDS: &str = "mstar_request_seconds";
/// Seconds from a request's arrival to the first thing its client is given, by model.
pub const FIRST_OUTPUT_SECONDS: &str = "mstar_first_output_seconds";
/// Steps done, by node.
pub const STEPS: &str = "mstar_steps_total";
/// Batches with rows of an op, by node and op.
pub const BATCHES: &str = "mstar_batches_total";
/// Rows in batches, by node and op: with [`BATCHES`], how many rows of an op go together.
pub const ROWS: &str = "mstar_batch_rows_total";
/// Rows of a batch, by node.
pub const BATCH_ROWS: &str = "mstar_batch_rows";
/// Seconds that a batch ran, by node.
pub const BATCH_SECONDS: &str = "mstar_batch_seconds";
/// Seconds that a step waited for its batch, by node.
pub const STEP_WAIT_SECONDS: &str = "mstar_step_wait_seconds";
/// KV pages in use, by node.
pub const KV_PAGES_USED: &str = "mstar_kv_pages_used";
/// KV pages in all, by node.
pub const KV_PAGES: &str = "mstar_kv_pages";
/// KV pages that nobody holds and that are known to hold how a sequence begins, by node.
pub const KV_PAGES_CACHED: &str = "mstar_kv_pages_cached";
/// Tokens that sequences began with, by node.
pub const PROMPT_TOKENS: &str = "mstar_prompt_tokens_total";
/// Of these, tokens found in cached or shared KV pages, by node.
pub const REUSED_TOKENS: &str = "mstar_prompt_tokens_reused_total";
/// Sequences or states that an engine keeps, by node.
pub const SEQUENCES: &str = "mstar_sequences";
/// Items sent into streams, by producing node.
pub const ITEMS: &str = "mstar_stream_items_total";
/// Restarts of node actors, by node.
pub const RESTARTS: &str = "mstar_node_restarts_total";
/// Whether a node is up, by node.
pub const UP: &str = "mstar_node_up";

/// A node actor's handles.
pub(crate) struct NodeMetrics {
    pub(crate) steps: Counter,
    rows: Histogram,
    by_op: Vec<OpMetrics>,
    pub(crate) batch_seconds: Histogram,
    pub(crate) wait_seconds: Histogram,
    pub(crate) items: Counter,
    usage: UsageMetrics,
}

/// Handles of what an engine holds.
pub struct UsageMetrics {
    kv_used: Gauge,
    kv_cached: Gauge,
    kv: Gauge,
    sequences: Gauge,
    prompt_tokens: Counter,
    reused_tokens: Counter,
}

/// Handles of one op.
struct OpMetrics {
    name: OpName,
    batches: Counter,
    rows: Counter,
}

// --- impl NodeMetrics ---

impl NodeMetrics {
    pub(crate) fn new(node: &str, ops: &[OpDecl]) -> Self {
        let node = || node.to_owned();
        let of_op = |op: &OpDecl| {
            let name = || op.name.as_str().to_owned();
            OpMetrics {
                name: op.name.clone(),
                batches: metrics::counter!(BATCHES, "node" => node(), "op" => name()),
                rows: metrics::counter!(ROWS, "node" => node(), "op" => name()),
            }
        };
        Self {
            steps: metrics::counter!(STEPS, "node" => node()),
            rows: metrics::histogram!(BATCH_ROWS, "node" => node()),
            by_op: ops.iter().map(of_op).collect(),
            batch_seconds: metrics::histogram!(BATCH_SECONDS, "node" => node()),
            wait_seconds: metrics::histogram!(STEP_WAIT_SECONDS, "node" => node()),
            items: metrics::counter!(ITEMS, "node" => node()),
            usage: UsageMetrics::new(&node()),
        }
    }

    /// Takes over what the engine holds.
    pub(crate) fn usage(&self, usage: &EngineUsage) {
        self.usage.note(usage);
    }
    /// Counts a batch.
    pub(crate) fn batch(&self, rows: &[Row]) {
        self.rows.record(rows.len() as f64);
        for op in &self.by_op {
            let of_op = rows.iter().filter(|row| row.op == op.name).count();
            if of_op > 0 {
                op.batches.increment(1);
                op.rows.increment(of_op as u64);
            }
        }
    }
}

// --- impl UsageMetrics ---

impl UsageMetrics {
    /// Returns the handles of a node.
    pub fn new(node: &str) -> Self {
        let node = || node.to_owned();
        Self {
            kv_used: metrics::gauge!(KV_PAGES_USED, "node" => node()),
            kv_cached: metrics::gauge!(KV_PAGES_CACHED, "node" => node()),
            kv: metrics::gauge!(KV_PAGES, "node" => node()),
            sequences: metrics::gauge!(SEQUENCES, "node" => node()),
            prompt_tokens: metrics::counter!(PROMPT_TOKENS, "node" => node()),
            reused_tokens: metrics::counter!(REUSED_TOKENS, "node" => node()),
        }
    }

    /// Takes over what an engine holds.
    pub fn note(&self, usage: &EngineUsage) {
        self.kv_used.set(usage.kv_pages_used as f64);
        self.kv_cached.set(usage.kv_pages_cached as f64);
        self.kv.set(usage.kv_pages as f64);
        self.sequences.set(usage.sequences as f64);
        self.prompt_tokens.absolute(usage.prompt_tokens);
        self.reused_tokens.absolute(usage.reused_tokens);
    }
}
