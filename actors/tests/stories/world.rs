//! A deployment of the scripted model in one process: a rank, a node actor per component, an ingress, supervised.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mstar_actors::{
    BatchLimits, Binding, BoundWalks, DeviceHandle, DeviceSpec, Faults, IngressArgs, IngressHandle, IngressLimits,
    NoFaults, NodeArgs, NodeSnapshot, Routes, Served, SimDevice, SupervisionBridge, ThreadDevice,
};
use mstar_contract::{Component, Gauge, LoadCx, Loaded, Model};
use mstar_engines::fake::{FakeComponent, FakeModel, FakeSettings};
use mstar_kernels::{Cx, Precision};
use mstar_supervisor::{Backoff, Intensity, SupervisorRef, SupervisorSpec};

/// How long anything may take to answer.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// What may be set in a deployment.
pub(crate) struct Setup {
    pub(crate) settings: FakeSettings,
    pub(crate) ingress: IngressLimits,
    pub(crate) batch: BatchLimits,
    pub(crate) faults: Arc<dyn Faults>,
    pub(crate) max_restarts: u32,
    pub(crate) replicas: usize,
    pub(crate) thread: bool,
}

/// A running deployment.
pub(crate) struct World {
    pub(crate) ingress: IngressHandle,
    pub(crate) routes: Arc<Routes>,
    pub(crate) served: Arc<Served>,
    pub(crate) device: DeviceHandle,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) supervisor: SupervisorRef,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            settings: FakeSettings::default(),
            ingress: IngressLimits { max_queued: 10_000, ..IngressLimits::default() },
            batch: BatchLimits::default(),
            faults: Arc::new(NoFaults),
            max_restarts: 1_000_000,
            replicas: 1,
            thread: false,
        }
    }
}

impl World {
    pub(crate) async fn start(setup: Setup) -> Self {
        let components = FakeComponent::all(&setup.settings);
        let replicas = 0..setup.replicas;
        let names = components.iter().flat_map(|c| replicas.clone().map(move |n| format!("{}#{n}", c.id())));
        let routes = Routes::new(names.chain(["ingress".to_owned()]).take(components.len() * setup.replicas));
        let gauge = Gauge::new("cpu0");
        let device = start_device(&setup, &routes, &gauge).await;
        let mut children = Vec::new();
        for (at, node) in routes.nodes().enumerate() {
            let component = &components[at / setup.replicas];
            install(&device, node, component).await;
            let ops = component.ops().into();
            let args = NodeArgs::new(node, ops, component.recovery(), device.clone(), Arc::clone(&routes));
            let args = NodeArgs { limits: setup.batch, faults: Arc::clone(&setup.faults), ..args };
            children.push(args.child());
        }
        let mut ingress = IngressArgs::new(setup.ingress, Arc::clone(&routes));
        ingress.faults = Arc::clone(&setup.faults);
        let handle = ingress.handle();
        children.push(ingress.child());
        for child in &mut children {
            child.intensity = Intensity { max_restarts: setup.max_restarts, within: Duration::from_secs(60) };
        }
        let mut spec = SupervisorSpec::new(children);
        spec.backoff = Backoff { first: Duration::from_millis(1), cap: Duration::from_millis(4), ..Backoff::default() };
        let bridge = Arc::new(SupervisionBridge::new(Arc::clone(&routes)));
        let supervisor = SupervisorRef::start(spec, bridge).await.expect("the supervisor starts");
        supervisor.settled(WITHIN).await.expect("the actors start");
        let served = serve(&components, setup.replicas);
        Self { ingress: handle, routes, served, device, gauge, supervisor }
    }

    pub(crate) async fn default() -> Self {
        Self::start(Setup::default()).await
    }

    pub(crate) async fn node(&self, name: &str) -> NodeSnapshot {
        let node = self.routes.find(name).expect("a node of this name");
        self.routes.node_snapshot(node, WITHIN).await.expect("the node answers")
    }

    /// Asserts that nothing of any request is left anywhere.
    pub(crate) async fn assert_empty(&self) {
        // The last retirements may be on their way.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(self.routes.walkers(), 0, "walkers");
        for node in self.routes.nodes() {
            let Some(state) = self.routes.node_snapshot(node, WITHIN).await else { continue };
            let NodeSnapshot { name, steps, streams, buffered, outgoing, requests, .. } = state;
            assert_eq!((steps, streams, buffered, outgoing, requests), (0, 0, 0, 0, 0), "{name}");
            let usage = self.device.usage(node, WITHIN).await.expect("the rank answers");
            assert_eq!((usage.kv_pages_used, usage.sequences), (0, 0), "{name}");
        }
        assert_eq!((self.gauge.live(), self.gauge.bytes()), (0, 0), "tensors");
    }
}

async fn start_device(setup: &Setup, routes: &Arc<Routes>, gauge: &Arc<Gauge>) -> DeviceHandle {
    let cx = Cx::with_threads(1).expect("a pool of one thread");
    let spec = DeviceSpec { name: "cpu0".into(), cx, gauge: Arc::clone(gauge), routes: Arc::clone(routes) };
    if setup.thread {
        return DeviceHandle::Thread(ThreadDevice::start(spec).expect("the thread starts"));
    }
    DeviceHandle::Simulated(SimDevice::start(spec).await.expect("the rank starts"))
}

async fn install(device: &DeviceHandle, node: mstar_actors::NodeIx, component: &Arc<dyn Component>) {
    let component = Arc::clone(component);
    let make = move |cx: &Cx, gauge: &Arc<Gauge>| {
        let (dir, precision) = (Path::new(""), Precision::F32);
        let load = LoadCx { dir, precision, cx, gauge, audio_seconds: 60, max_output_tokens: 1024 };
        match component.load(&load)? {
            Loaded::Engine(engine) => Ok(engine),
            _ => panic!("a fake brings its engine"),
        }
    };
    device.install(node, Box::new(make), WITHIN).await.expect("the engine is made");
}

fn serve(components: &[Arc<dyn Component>], replicas: usize) -> Arc<Served> {
    let model: Arc<dyn Model> = Arc::new(FakeModel::new().expect("the graph is valid"));
    let bind = |(node, component): (&mstar_graph::NodeName, &mstar_graph::ComponentId)| {
        let at = components.iter().position(|known| known.id() == *component).expect("the component exists");
        let replica = |n| mstar_actors::NodeIx(u32::try_from(at * replicas + n).expect("few nodes"));
        Binding {
            node: node.clone(),
            component: component.clone(),
            walks: BoundWalks::All,
            replicas: (0..replicas).map(replica).collect(),
            ops: components[at].ops().into(),
            recovery: components[at].recovery(),
        }
    };
    let bindings = model.graph().nodes().map(bind).collect();
    Arc::new(Served::new(model, bindings).expect("the model is bound"))
}

/// A number that is never the same twice.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
