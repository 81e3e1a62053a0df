//! Metrics: their names, and handles that cost no look-up where they are moved per step.

use metrics::{Counter, Gauge, Histogram};

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
    pub(crate) rows: Histogram,
    pub(crate) batch_seconds: Histogram,
    pub(crate) wait_seconds: Histogram,
    pub(crate) items: Counter,
    pub(crate) kv_used: Gauge,
    pub(crate) kv: Gauge,
    pub(crate) sequences: Gauge,
}

// --- impl NodeMetrics ---

impl NodeMetrics {
    pub(crate) fn new(node: &str) -> Self {
        let node = || node.to_owned();
        Self {
            steps: metrics::counter!(STEPS, "node" => node()),
            rows: metrics::histogram!(BATCH_ROWS, "node" => node()),
            batch_seconds: metrics::histogram!(BATCH_SECONDS, "node" => node()),
            wait_seconds: metrics::histogram!(STEP_WAIT_SECONDS, "node" => node()),
            items: metrics::counter!(ITEMS, "node" => node()),
            kv_used: metrics::gauge!(KV_PAGES_USED, "node" => node()),
            kv: metrics::gauge!(KV_PAGES, "node" => node()),
            sequences: metrics::gauge!(SEQUENCES, "node" => node()),
        }
    }
}
