//! The boot: weights, ranks, engines, node actors, the way in. Each stage says in one line what it did.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mstar_actors::{
    Binding, BoundWalks, DeviceError, DeviceHandle, Faults, IngressArgs, IngressLimits, NoFaults, NodeArgs, NodeIx,
    Routes, Served, ServedError, SupervisionBridge,
};
use mstar_config::{AccessError, Deployment, Environment, Limits, Supervision};
use mstar_engines::kv::PAGE_TOKENS;
use mstar_graph::ModelId;
use mstar_supervisor::{
    Backoff, ChildSpec, Health, Intensity, OnStuck, SupervisionEvent, SupervisorError, SupervisorRef, SupervisorSpec,
};
use mstar_zoo::Zoo;
use tokio::time::Instant;

use crate::cluster::{Cluster, Parts};
use crate::engine;
use crate::memory;
use crate::metrics;
use crate::placement::{NodeTable, PlacedBinding, PlacementError};
use crate::rank::{self, LiveRank, RankError};
use crate::restricted::Restricted;
use crate::watch::{BootEvent, Watcher};
use crate::weights::{self, WeightTable, WeightsError};

/// Everything a boot starts from.
pub struct Boot {
    /// What is served.
    pub deployment: Deployment,
    /// The folder that the deployment's relative paths are seen from.
    pub folder: PathBuf,
    /// What the environment says.
    pub environment: Environment,
    /// The models of this build.
    pub zoo: Zoo,
    /// Hears how it goes.
    pub watcher: Watcher,
    /// Where actors fail on purpose.
    pub faults: Arc<dyn Faults>,
}

/// A deployment could not be booted.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// It cannot be laid out.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Weights are missing.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A rank cannot be set up.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// An engine cannot be made.
    #[error("node {node} could not be loaded")]
    Load {
        /// The node.
        node: String,
        /// Why.
        source: DeviceError,
    },
    /// A model does not fit its components.
    #[error("model {model}")]
    Served {
        /// The model.
        model: ModelId,
        /// Why.
        source: ServedError,
    },
    /// The supervisor of the node actors failed.
    #[error("the node actors could not be started")]
    Supervisor(#[from] SupervisorError),
    /// Node actors did not come up.
    #[error("these did not start: {0}")]
    NotUp(String),
    /// API keys are missing.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The metrics' recorder could not be installed.
    #[error("metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// How long making one engine may take: reading and packing gigabytes on a slow disk.
const LOAD_WITHIN: Duration = Duration::from_secs(600);
/// How long node actors may take to come up; they load nothing.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

// --- impl Boot ---

impl Boot {
    /// Boots this deployment of these models, with all else as usual.
    pub fn new(deployment: Deployment, zoo: Zoo) -> Self {
        Self {
            deployment,
            folder: PathBuf::from("."),
            environment: Environment::default(),
            zoo,
            watcher: Watcher::default(),
            faults: Arc::new(NoFaults),
        }
    }
}

// --- impl Cluster ---

impl Cluster {
    /// Boots a deployment. When it returns, every node is up and requests can be handed in.
    pub async fn boot(boot: Boot) -> Result<Self, BootError> {
        let Boot { deployment, folder, environment, zoo, watcher, faults } = boot;
        let began = Instant::now();
        let keys = deployment.all_keys(&folder, &environment)?;
        let mut table = NodeTable::of(&deployment, &zoo)?;
        memory::available().into_iter().for_each(|available| table.share_memory(available));
        // Before anything takes a handle of a metric.
        let recorder = if deployment.metrics.enabled { Some(metrics::recorder()?) } else { None };
        let routes = Routes::new(table.nodes.iter().map(|node| node.name.clone()));
        let used = |rank: &str| table.nodes.iter().any(|node| node.rank == rank);
        rank::tell_of_gpus();
        let ranks = rank::start(&deployment.ranks, used, &routes)?;

        let cache = deployment.cache_dir(&environment);
        let weights = weights::fetch(table.weights(), cache.as_deref(), &folder, &watcher).await?;
        let loading = Loading { table: &table, zoo: &zoo, weights: &weights, bounds: &deployment.limits };
        load(&loading, &ranks, &watcher).await?;

        let served = serve(&table, &zoo)?;
        let limits = IngressLimits {
            max_running: deployment.limits.max_concurrent,
            max_queued: deployment.limits.queue_limit,
            client_credit: deployment.limits.client_credit,
            deadline: deployment.limits.request_deadline,
        };
        let ingress = IngressArgs { limits, routes: Arc::clone(&routes), faults: Arc::clone(&faults) };
        let handle = ingress.handle();
        let actors = Actors { table: &table, zoo: &zoo, ranks: &ranks, routes: &routes, faults: &faults };
        let supervisor = actors.start(ingress, &deployment.supervision).await?;

        watcher.tell(BootEvent::Up { nodes: table.nodes.len() });
        let seconds = began.elapsed().as_secs_f64();
        tracing::info!("up: {} nodes on {} ranks after {seconds:.2} s", table.nodes.len(), ranks.len());
        let begin_traces = deployment.otlp_endpoint(&environment).is_some();
        let ingress = handle;
        Ok(Self::of(Parts {
            deployment,
            keys,
            table,
            routes,
            ranks,
            weights,
            served,
            ingress,
            supervisor,
            recorder,
            begin_traces,
        }))
    }
}

/// What engines are made from.
struct Loading<'a> {
    table: &'a NodeTable,
    zoo: &'a Zoo,
    weights: &'a WeightTable,
    bounds: &'a Limits,
}

/// Makes the engines: on each rank one after the other, the ranks side by side.
async fn load(loading: &Loading<'_>, ranks: &[LiveRank], watcher: &Watcher) -> Result<(), BootError> {
    let &Loading { table, zoo, weights, bounds } = loading;
    let lanes = ranks.iter().map(|rank| async move {
        for (at, node) in table.nodes.iter().enumerate().filter(|(_, node)| node.rank == rank.name) {
            let component = zoo.component(node.component.as_str());
            let component = component.ok_or_else(|| PlacementError::Unknown(node.component.as_str().to_owned()))?;
            let ready = node.weights.as_ref().and_then(|wanted| weights.get(wanted));
            let dir = ready.map_or(Path::new(""), |ready| ready.dir.path());
            let (component, dir, affinity) = (Arc::clone(component), dir.to_path_buf(), rank.affinity.clone());
            let make = engine::maker(component, node, dir, affinity, bounds);
            let began = Instant::now();
            let made = rank.device.install(address(at), make, LOAD_WITHIN).await;
            made.map_err(|source| BootError::Load { node: node.name.clone(), source })?;
            let took = began.elapsed();
            let (name, device, rank, seconds) = (&node.name, &rank.device, &rank.name, took.as_secs_f64());
            tracing::info!("loaded {name} in {:?} on {rank} in {seconds:.2} s", node.precision);
            if let (Some(_), Some(pages)) = (node.kv, kv_pages(device, at).await) {
                let whence = if node.kv_shared { ", a share of the memory available" } else { "" };
                tracing::info!("KV of {name}: {pages} pages for {} tokens{whence}", pages * PAGE_TOKENS);
            }
            watcher.tell(BootEvent::Loaded { node: name.clone(), rank: rank.clone(), took });
        }
        Ok::<(), BootError>(())
    });
    for outcome in join_all(lanes).await {
        outcome?;
    }
    Ok(())
}

/// Returns how many KV pages a node's engine has.
async fn kv_pages(device: &DeviceHandle, at: usize) -> Option<usize> {
    let usage = device.usage(address(at), LOAD_WITHIN).await.ok()?;
    (usage.kv_pages > 0).then_some(usage.kv_pages)
}

/// Runs futures side by side on this task and returns their results in order.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in running.iter_mut().filter(|(_, result)| result.is_none()) {
            match future.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => *result = Some(output),
                std::task::Poll::Pending => pending = true,
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}

/// Binds every served model to its nodes.
fn serve(table: &NodeTable, zoo: &Zoo) -> Result<BTreeMap<ModelId, Arc<Served>>, BootError> {
    let mut served = BTreeMap::new();
    for placed in &table.models {
        let unknown = |id: &str| PlacementError::Unknown(id.to_owned());
        let model = zoo.model(placed.id.as_str()).ok_or_else(|| unknown(placed.id.as_str()))?;
        let bindings = placed.bindings.iter().map(|binding| {
            let PlacedBinding { node, component: id, walks, replicas } = binding;
            let component = zoo.component(id.as_str()).ok_or_else(|| unknown(id.as_str()))?;
            Ok(Binding {
                node: node.clone(),
                component: id.clone(),
                walks: BoundWalks::Only(walks.clone()),
                replicas: replicas.clone(),
                ops: component.ops().into(),
                recovery: component.recovery(),
            })
        });
        let bindings = bindings.collect::<Result<Vec<Binding>, PlacementError>>()?;
        let bound = Served::new(Restricted::of(model, &placed.walks), bindings);
        let bound = bound.map_err(|source| BootError::Served { model: placed.id.clone(), source })?;
        served.insert(placed.id.clone(), Arc::new(bound));
    }
    Ok(served)
}

/// What node actors are made of.
struct Actors<'a> {
    table: &'a NodeTable,
    zoo: &'a Zoo,
    ranks: &'a [LiveRank],
    routes: &'a Arc<Routes>,
    faults: &'a Arc<dyn Faults>,
}

// --- impl Actors ---

impl Actors<'_> {
    /// Starts all node actors and then the ingress under one supervisor, and waits until they are up.
    async fn start(&self, ingress: IngressArgs, rules: &Supervision) -> Result<SupervisorRef, BootError> {
        let intensity = Intensity { max_restarts: rules.max_restarts, within: rules.within };
        let mut children = self.children(rules)?;
        children.push(ingress.child());
        children.iter_mut().for_each(|child| child.intensity = intensity);
        let mut spec = SupervisorSpec::new(children);
        spec.backoff = Backoff { first: rules.backoff_min, cap: rules.backoff_max, ..Backoff::default() };
        let bridge = SupervisionBridge::new(Arc::clone(self.routes)).then(Arc::new(log_event));
        let supervisor = SupervisorRef::start(spec, Arc::new(bridge)).await?;
        let settled = supervisor.settled(SETTLE_WITHIN).await?;
        if settled.healthy() {
            return Ok(supervisor);
        }
        let down = settled.children.iter().filter(|child| child.state.as_str() != "running");
        let down: Vec<String> = down
            .map(|child| format!("{} ({})", child.name, child.last_reason.as_deref().unwrap_or(child.state.as_str())))
            .collect();
        Err(BootError::NotUp(down.join(", ")))
    }

    fn children(&self, rules: &Supervision) -> Result<Vec<ChildSpec>, BootError> {
        let mut children = Vec::new();
        for (at, node) in self.table.nodes.iter().enumerate() {
            let unknown = || PlacementError::Unknown(node.component.as_str().to_owned());
            let component = self.zoo.component(node.component.as_str()).ok_or_else(unknown)?;
            let rank = self.ranks.iter().find(|rank| rank.name == node.rank);
            let rank = rank.ok_or_else(|| PlacementError::Unknown(node.rank.clone()))?;
            let (ix, routes) = (address(at), Arc::clone(self.routes));
            let mut args = NodeArgs::new(ix, component.ops().into(), component.recovery(), rank.device.clone(), routes);
            args.limits = node.limits;
            args.faults = Arc::clone(self.faults);
            let mut child = args.child();
            child.health = Some(Health {
                progress: Arc::clone(self.routes.progress(ix)),
                stuck_after: rules.stuck_after,
                on_stuck: match rules.on_stuck {
                    mstar_config::OnStuck::Report => OnStuck::Report,
                    mstar_config::OnStuck::Restart => OnStuck::Restart,
                },
            });
            children.push(child);
        }
        Ok(children)
    }
}

fn address(index: usize) -> NodeIx {
    NodeIx(u32::try_from(index).expect("invariant: a deployment has fewer than 2^32 nodes"))
}

/// Writes the life of nodes to the log.
fn log_event(event: SupervisionEvent) {
    match event {
        SupervisionEvent::Started { child, incarnation, .. } => {
            tracing::debug!(node = child, incarnation = incarnation.0, "started");
        }
        SupervisionEvent::Exited { child, incarnation, reason } if reason.is_failure() => {
            tracing::warn!(node = child, incarnation = incarnation.0, "ended: {reason}");
        }
        SupervisionEvent::Exited { child, incarnation, reason } => {
            tracing::debug!(node = child, incarnation = incarnation.0, "ended: {reason}");
        }
        SupervisionEvent::Restarting { child, restarts, after } => {
            tracing::info!(node = child, restarts, "restarts in {after:?}");
        }
        SupervisionEvent::MarkedDown { child, reason } => {
            tracing::error!(node = child, "given up: {reason}");
        }
        SupervisionEvent::Stuck { child, report } => {
            tracing::error!(node = child, "stuck: {report}");
        }
    }
}
