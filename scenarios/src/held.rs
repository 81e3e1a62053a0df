//! What requests hold anywhere in a deployment: nothing, once they are over.

use std::time::Duration;

use mstar_runtime::Cluster;
use serde_json::{Value, json};
use tokio::time::Instant;

/// What all requests together hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    walkers: usize,
    running: usize,
    queued: usize,
    steps: usize,
    streams: usize,
    items: usize,
    requests: usize,
    kv_pages: usize,
    sequences: usize,
    tensors: u64,
    tensor_bytes: u64,
    /// Nodes that did not answer.
    silent: usize,
}

/// How long a node may take to say how it stands.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often to look again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

// --- impl Held ---

impl Held {
    /// Returns what requests hold now.
    pub(crate) async fn now(cluster: &Cluster) -> Self {
        let mut held = Self::default();
        if let Ok(ingress) = cluster.ingress().snapshot().await {
            held.running = ingress.running.len();
            held.queued = ingress.queued;
        }
        let routes = cluster.routes();
        for node in routes.nodes() {
            let (state, usage) = (routes.node_snapshot(node, ANSWER_WITHIN).await, cluster.usage(node).await);
            let (Some(node), Some(usage)) = (state, usage) else {
                held.silent += 1;
                continue;
            };
            held.steps += node.steps;
            held.streams += node.streams;
            held.items += node.buffered + node.outgoing;
            held.requests += node.requests;
            held.kv_pages += usage.kv_pages_used;
            held.sequences += usage.sequences;
        }
        held.walkers = routes.walkers();
        held.tensors = cluster.gauges().map(|gauge| gauge.live()).sum();
        held.tensor_bytes = cluster.gauges().map(|gauge| gauge.bytes()).sum();
        held
    }

    /// Waits until requests hold nothing, but not longer than this, and returns what they hold then.
    pub(crate) async fn settled(cluster: &Cluster, within: Duration) -> Self {
        let deadline = Instant::now() + within;
        loop {
            let held = Self::now(cluster).await;
            if held.nothing() || Instant::now() >= deadline {
                return held;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns whether requests hold nothing.
    pub(crate) fn nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "walkers": self.walkers, "running": self.running, "queued": self.queued, "steps": self.steps,
            "stream_buffers": self.streams, "stream_items": self.items, "requests_at_nodes": self.requests,
            "kv_pages": self.kv_pages, "sequences": self.sequences, "tensors": self.tensors,
            "tensor_bytes": self.tensor_bytes, "silent_nodes": self.silent,
        })
    }
}
