//! A deployment that runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use mstar_actors::{IngressHandle, NodeIx, Routes, Served};
use mstar_config::{ApiKey, Deployment};
use mstar_contract::{EngineUsage, Gauge};
use mstar_gateway::{ApiKeys, BodyBudget, Gateway, Limits};
use mstar_graph::ModelId;
use mstar_supervisor::SupervisorRef;
use tokio::task::AbortHandle;

use crate::metrics::UPKEEP;
use crate::operations::{ClusterOperations, USAGE_WITHIN};
use crate::placement::NodeTable;
use crate::rank::LiveRank;
use crate::weights::WeightTable;

/// A deployment that runs. Dropped without [`Cluster::shutdown`], its actors go on.
pub struct Cluster {
    deployment: Deployment,
    gateway: Arc<Gateway>,
    operations: Arc<ClusterOperations>,
    supervisor: SupervisorRef,
    upkeep: Option<AbortHandle>,
}

/// How draining ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All requests ended by themselves.
    Clean,
    /// Some had to be cancelled.
    Cancelled,
}

/// What a boot has made.
pub(crate) struct Parts {
    pub(crate) deployment: Deployment,
    pub(crate) keys: Vec<ApiKey>,
    pub(crate) table: NodeTable,
    pub(crate) routes: Arc<Routes>,
    pub(crate) ranks: Vec<LiveRank>,
    pub(crate) weights: WeightTable,
    pub(crate) served: BTreeMap<ModelId, Arc<Served>>,
    pub(crate) ingress: IngressHandle,
    pub(crate) supervisor: SupervisorRef,
    pub(crate) recorder: Option<PrometheusHandle>,
    pub(crate) begin_traces: bool,
}

/// How often a drain tells how many requests still run.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long the supervisor may take to stop its children.
const STOP_WITHIN: Duration = Duration::from_secs(10);

// --- impl Cluster ---

impl Cluster {
    pub(crate) fn of(parts: Parts) -> Self {
        let Parts { deployment, keys, table, routes, ranks, weights, .. } = parts;
        let (served, ingress, supervisor, recorder) = (parts.served, parts.ingress, parts.supervisor, parts.recorder);
        let begin_traces = parts.begin_traces;
        let operations = Arc::new(ClusterOperations {
            table,
            routes,
            ranks,
            weights,
            served: served.clone(),
            ingress: ingress.clone(),
            supervisor: supervisor.clone(),
            recorder,
            drain_within: deployment.limits.drain,
        });
        let upkeep = operations.recorder.is_some().then(|| keep_up(Arc::clone(&operations)));
        let gateway = Arc::new(Gateway {
            models: served,
            default_model: deployment.default_model.as_str().into(),
            ingress,
            limits: Limits {
                body_bytes: deployment.limits.body_bytes,
                body_timeout: deployment.http.body_timeout,
                body_stall: deployment.http.body_stall,
                reader_stall: deployment.http.reader_stall,
                max_output_tokens: deployment.limits.max_output_tokens,
                deadline: deployment.limits.request_deadline,
                retry_after_s: deployment.limits.retry_after_s,
            },
            bodies: BodyBudget::new(deployment.http.bodies_bytes),
            keys: ApiKeys::new(keys.iter().map(ApiKey::expose)),
            operations: Arc::clone(&operations) as _,
            running: Default::default(),
            begin_traces,
        });
        Self { deployment, gateway, operations, supervisor, upkeep }
    }

    /// Returns the deployment.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Returns what the HTTP server is made of.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Returns where requests go in.
    pub fn ingress(&self) -> &IngressHandle {
        &self.operations.ingress
    }

    /// Returns a served model.
    pub fn served(&self, model: &str) -> Option<&Arc<Served>> {
        self.operations.served.get(&ModelId::from(model))
    }

    /// Returns the table of actors.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.operations.routes
    }

    /// Returns the nodes and which models they serve.
    pub fn table(&self) -> &NodeTable {
        &self.operations.table
    }

    /// Asks a node's engine what it holds; nothing comes back from one that is late.
    pub async fn usage(&self, node: NodeIx) -> Option<EngineUsage> {
        self.operations.usage(node, USAGE_WITHIN).await
    }

    /// Returns the tensor counters of all ranks.
    pub fn gauges(&self) -> impl Iterator<Item = &Arc<Gauge>> {
        self.operations.ranks.iter().map(|rank| &rank.gauge)
    }

    /// Admits nothing more and waits until what runs has ended; what takes longer than the deployment allows is
    /// cancelled. Calls `tell` now and then with how many requests run or wait.
    pub async fn drain(&self, mut tell: impl FnMut(usize)) -> Drained {
        self.operations.routes.note_draining();
        let drained = self.operations.ingress.drain(self.deployment.limits.drain);
        tokio::pin!(drained);
        loop {
            match tokio::time::timeout(TELL_EVERY, &mut drained).await {
                Ok(Ok(true)) => return Drained::Clean,
                Ok(_) => return Drained::Cancelled,
                Err(_) => {
                    if let Ok(now) = self.operations.ingress.snapshot().await {
                        tell(now.running.len() + now.queued);
                    }
                }
            }
        }
    }

    /// Stops all actors and compute threads.
    pub async fn shutdown(self) {
        if let Err(error) = self.supervisor.shutdown(STOP_WITHIN).await {
            tracing::warn!(%error, "the actors did not stop in time");
        }
        self.operations.ranks.iter().for_each(|rank| rank.device.stop());
        if let Some(upkeep) = self.upkeep {
            upkeep.abort();
        }
    }
}

/// Folds histograms now and then, which otherwise grow until somebody asks for the metrics, and notes what engines
/// hold, of which nodes hear only with their next batch.
fn keep_up(operations: Arc<ClusterOperations>) -> AbortHandle {
    let task = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP);
        loop {
            ticks.tick().await;
            operations.note_usage().await;
            if let Some(recorder) = &operations.recorder {
                recorder.run_upkeep();
            }
        }
    });
    task.abort_handle()
}
