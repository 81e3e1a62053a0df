//! Where messages go: node address -> live actor and incarnation, request -> walker. Nobody else keeps a reference
//! to a node actor, because a restarted actor has a new one and an empty mailbox.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dashmap::DashMap;
use mstar_contract::RequestKey;
use mstar_supervisor::{Incarnation, Progress};
use ractor::ActorRef;
use ractor::rpc::CallResult;

use crate::ids::IdHasher;
use crate::messages::{IngressMsg, NodeIx, NodeMsg, WalkerMsg};
use crate::snapshot::NodeSnapshot;

/// The process's table of actors. Declared once with all nodes of the deployment, shared by all actors.
#[derive(Debug)]
pub struct Routes {
    nodes: Vec<NodeSlot>,
    walkers: DashMap<u64, ActorRef<WalkerMsg>, BuildHasherDefault<IdHasher>>,
    ingress: RwLock<IngressRoute>,
    draining: AtomicBool,
    next_request: AtomicU64,
}

#[derive(Debug)]
struct NodeSlot {
    name: String,
    route: RwLock<Route>,
    progress: Arc<Progress>,
}

/// Where a node's messages go now, or the ingress's.
#[derive(Clone, Debug)]
pub enum Route<A = ActorRef<NodeMsg>> {
    /// To this actor.
    Live(A, Incarnation),
    /// Nowhere yet: it starts, for the first time or again.
    Starting,
    /// Nowhere: it was given up, for this reason.
    Down(Arc<str>),
}

/// Where the messages of the ingress go now.
pub type IngressRoute = Route<ActorRef<IngressMsg>>;

// --- impl Routes ---

impl Routes {
    /// Declares the deployment's nodes; a node's address is its place in the list.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Arc<Self> {
        let slot = |name| NodeSlot { name, route: RwLock::new(Route::Starting), progress: Progress::new() };
        Arc::new(Self {
            nodes: names.into_iter().map(|name| slot(name.into())).collect(),
            walkers: DashMap::default(),
            ingress: RwLock::new(Route::Starting),
            draining: AtomicBool::new(false),
            next_request: AtomicU64::new(1),
        })
    }

    /// Returns the addresses of all nodes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeIx> + use<> {
        let count = u32::try_from(self.nodes.len()).expect("invariant: fewer than 2^32 nodes");
        (0..count).map(NodeIx)
    }

    /// Returns a node's name.
    pub fn name(&self, node: NodeIx) -> &str {
        &self.slot(node).name
    }

    /// Finds a node by its name.
    pub fn find(&self, name: &str) -> Option<NodeIx> {
        self.nodes().find(|&node| self.name(node) == name)
    }

    /// Returns where a node's messages go now.
    pub fn route(&self, node: NodeIx) -> Route {
        self.slot(node).route.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the live incarnation of a node.
    pub fn incarnation(&self, node: NodeIx) -> Option<Incarnation> {
        match *self.slot(node).route.read().unwrap_or_else(PoisonError::into_inner) {
            Route::Live(_, incarnation) => Some(incarnation),
            _ => None,
        }
    }

    /// Returns whether a node was given up.
    pub fn is_down(&self, node: NodeIx) -> bool {
        matches!(&*self.slot(node).route.read().unwrap_or_else(PoisonError::into_inner), Route::Down(_))
    }

    /// Changes where a node's messages go. Only the supervision's bridge does.
    pub fn set(&self, node: NodeIx, route: Route) {
        *self.slot(node).route.write().unwrap_or_else(PoisonError::into_inner) = route;
    }

    /// Returns the counters by which a node's supervisor sees it work.
    pub fn progress(&self, node: NodeIx) -> &Arc<Progress> {
        &self.slot(node).progress
    }

    /// Sends a message to a node and returns the incarnation it went to, or nothing when none lives.
    ///
    /// A message to an actor that has just died is lost like one that it did not come to handle: who waits for the
    /// outcome hears of the replacement.
    pub fn send(&self, node: NodeIx, message: NodeMsg) -> Option<Incarnation> {
        match &*self.slot(node).route.read().unwrap_or_else(PoisonError::into_inner) {
            Route::Live(actor, incarnation) => {
                let _ = actor.cast(message);
                Some(*incarnation)
            }
            _ => None,
        }
    }

    /// Sends a message to a node if this is its live incarnation. Returns whether it was.
    pub(crate) fn send_to(&self, node: NodeIx, incarnation: Incarnation, message: NodeMsg) -> bool {
        match &*self.slot(node).route.read().unwrap_or_else(PoisonError::into_inner) {
            Route::Live(actor, live) if *live == incarnation => {
                let _ = actor.cast(message);
                true
            }
            _ => false,
        }
    }

    /// Sends a message to a request's walker; one that has ended needs it no more.
    pub fn tell(&self, key: RequestKey, message: WalkerMsg) {
        if let Some(walker) = self.walkers.get(&key.id) {
            let _ = walker.cast(message);
        }
    }

    /// Sends a message to every walker.
    pub fn tell_all(&self, message: impl Fn() -> WalkerMsg) {
        for walker in &self.walkers {
            let _ = walker.cast(message());
        }
    }

    /// Returns a request's walker.
    pub fn walker(&self, key: RequestKey) -> Option<ActorRef<WalkerMsg>> {
        self.walkers.get(&key.id).map(|walker| walker.clone())
    }

    /// Returns how many walkers there are.
    pub fn walkers(&self) -> usize {
        self.walkers.len()
    }

    /// Returns the ingress, when it lives.
    pub fn ingress(&self) -> Option<ActorRef<IngressMsg>> {
        match &*self.ingress.read().unwrap_or_else(PoisonError::into_inner) {
            Route::Live(ingress, _) => Some(ingress.clone()),
            _ => None,
        }
    }

    /// Returns where the messages of the ingress go now.
    pub fn ingress_route(&self) -> IngressRoute {
        self.ingress.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that nothing more is admitted, in this life of the ingress and all that follow. Returns whether that is new.
    pub fn note_draining(&self) -> bool {
        !self.draining.swap(true, Ordering::SeqCst)
    }

    /// Returns whether nothing more is admitted.
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Asks a node how it stands; nothing comes back from one that is away or late.
    pub async fn node_snapshot(&self, node: NodeIx, within: Duration) -> Option<NodeSnapshot> {
        let Route::Live(actor, _) = self.route(node) else { return None };
        match actor.call(NodeMsg::Snapshot, Some(within)).await {
            Ok(CallResult::Success(snapshot)) => Some(snapshot),
            _ => None,
        }
    }

    /// Returns a key for a new request.
    pub(crate) fn next_key(&self) -> RequestKey {
        RequestKey { id: self.next_request.fetch_add(1, Ordering::Relaxed), attempt: 0 }
    }

    /// Lets all nodes forget the requests whose walkers died with their ingress.
    pub(crate) fn retire_orphans(&self) {
        let orphans: Vec<u64> = self.walkers.iter().map(|walker| *walker.key()).collect();
        for id in orphans {
            self.walkers.remove(&id);
            for node in self.nodes() {
                self.send(node, NodeMsg::Retire(RequestKey { id, attempt: u32::MAX }));
            }
        }
    }

    /// Changes where the messages of the ingress go. Only the supervision's bridge does.
    pub(crate) fn set_ingress(&self, route: IngressRoute) {
        *self.ingress.write().unwrap_or_else(PoisonError::into_inner) = route;
    }

    pub(crate) fn add_walker(&self, key: RequestKey, walker: ActorRef<WalkerMsg>) {
        self.walkers.insert(key.id, walker);
    }

    pub(crate) fn remove_walker(&self, key: RequestKey) {
        self.walkers.remove(&key.id);
    }

    fn slot(&self, node: NodeIx) -> &NodeSlot {
        &self.nodes[node.0 as usize]
    }
}
