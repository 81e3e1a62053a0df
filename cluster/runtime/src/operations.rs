//! What the gateway may ask of the running cluster.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use mstar_actors::metrics::UsageMetrics;
use mstar_actors::{IngressHandle, NodeIx, Route, Routes, Served};
use mstar_contract::EngineUsage;
use mstar_gateway::{Operations, Readiness};
use mstar_graph::ModelId;
use mstar_supervisor::SupervisorRef;

use crate::metrics::{TENSOR_BYTES, TENSORS, note_memory};
use crate::placement::NodeTable;
use crate::rank::LiveRank;
use crate::view;
use crate::weights::WeightTable;

/// Views and switches of the running cluster.
pub(crate) struct ClusterOperations {
    pub(crate) table: NodeTable,
    pub(crate) routes: Arc<Routes>,
    pub(crate) ranks: Vec<LiveRank>,
    pub(crate) weights: WeightTable,
    pub(crate) served: BTreeMap<ModelId, Arc<Served>>,
    pub(crate) ingress: IngressHandle,
    pub(crate) supervisor: SupervisorRef,
    pub(crate) recorder: Option<PrometheusHandle>,
    pub(crate) drain_within: Duration,
}

/// How long a rank may take to say what an engine holds: it answers between two batches.
pub(crate) const USAGE_WITHIN: Duration = Duration::from_millis(200);

// --- impl ClusterOperations ---

impl ClusterOperations {
    /// Returns what a node's engine holds now, if its rank says so in time.
    pub(crate) async fn usage(&self, node: NodeIx, within: Duration) -> Option<EngineUsage> {
        let placed = self.table.nodes.get(node.0 as usize)?;
        let rank = self.ranks.iter().find(|rank| rank.name == placed.rank)?;
        rank.device.usage(node, within).await.ok()
    }

    /// Brings the metrics of what engines hold up to date.
    pub(crate) async fn note_usage(&self) {
        for node in self.routes.nodes() {
            let Some(usage) = self.usage(node, USAGE_WITHIN).await else { continue };
            UsageMetrics::new(self.routes.name(node)).note(&usage);
        }
    }

    /// Says why a graph node that walks visit cannot serve now, if so: none of its replicas lives.
    fn trouble(&self, served: &Served) -> Vec<String> {
        let mut problems = Vec::new();
        for binding in served.bindings().iter().filter(|binding| !binding.replicas.is_empty()) {
            let routes: Vec<Route> = binding.replicas.iter().map(|&node| self.routes.route(node)).collect();
            if routes.iter().any(|route| matches!(route, Route::Live(..))) {
                continue;
            }
            let down = routes.iter().find_map(|route| match route {
                Route::Down(reason) => Some(format!("is down: {reason}")),
                _ => None,
            });
            let starts = routes.iter().any(|route| matches!(route, Route::Starting));
            let state = down.filter(|_| !starts).unwrap_or_else(|| "starts".to_owned());
            problems.push(format!("{} of model {}: {} {state}", binding.node, served.model().id(), binding.component));
        }
        problems
    }
}

impl Operations for ClusterOperations {
    fn readiness(&self) -> Readiness {
        let mut problems: Vec<String> = self.served.values().flat_map(|served| self.trouble(served)).collect();
        match self.routes.ingress_route() {
            Route::Live(..) => {}
            Route::Starting => problems.push("the ingress starts".to_owned()),
            Route::Down(reason) => problems.push(format!("the ingress is down: {reason}")),
        }
        if self.draining() {
            problems.push("the server drains".to_owned());
        }
        Readiness { problems }
    }

    fn cluster(&self) -> Pin<Box<dyn Future<Output = serde_json::Value> + Send + '_>> {
        Box::pin(view::cluster(self))
    }

    fn drain(&self) {
        if self.routes.note_draining() {
            let (ingress, within) = (self.ingress.clone(), self.drain_within);
            tokio::spawn(async move {
                let ended = ingress.drain(within).await;
                tracing::info!(
                    "drained: {}",
                    if matches!(ended, Ok(true)) { "all requests ended" } else { "not all ended" }
                );
            });
        }
    }

    fn draining(&self) -> bool {
        self.routes.draining()
    }

    fn metrics(&self) -> String {
        let Some(recorder) = &self.recorder else { return "# metrics are off in the deployment\n".to_owned() };
        for rank in &self.ranks {
            metrics::gauge!(TENSORS, "rank" => rank.name.clone()).set(rank.gauge.live() as f64);
            metrics::gauge!(TENSOR_BYTES, "rank" => rank.name.clone()).set(rank.gauge.bytes() as f64);
        }
        note_memory();
        recorder.render()
    }
}
