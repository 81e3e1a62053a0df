//! A model as it is deployed: its graph's nodes bound to node addresses, everything a step needs looked up once.

use std::sync::Arc;

use mstar_contract::{KvUse, Model, OpDecl, Recovery, RequestKey};
use mstar_graph::{
    ComponentId, Graph, NodeName, OpName, PartitionName, Port, StepIx, StreamIx, StreamName, Target, WalkName,
};
use smallvec::SmallVec;

use crate::messages::{NodeIx, OpIx};
use crate::routes::{Route, Routes};

/// A model with the nodes that serve it.
pub struct Served {
    model: Arc<dyn Model>,
    bindings: Vec<Binding>,
    steps: Vec<StepBinding>,
    streams: Vec<StreamBinding>,
}

/// Who serves a graph node in some walks, and what its component declares.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The graph's node.
    pub node: NodeName,
    /// Its component.
    pub component: ComponentId,
    /// The walks whose steps it serves.
    pub walks: BoundWalks,
    /// The node actors that may serve it. A request sticks to one of them through all these walks. None where they are
    /// not served.
    pub replicas: Vec<NodeIx>,
    /// The component's ops.
    pub ops: Arc<[OpDecl]>,
    /// What to do when a request's state there is lost.
    pub recovery: Recovery,
}

/// Some walks of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundWalks {
    /// All of them.
    All,
    /// These.
    Only(Vec<WalkName>),
}

/// A graph's step, resolved.
#[derive(Debug)]
pub(crate) struct StepBinding {
    /// Which binding serves it.
    pub(crate) slot: usize,
    pub(crate) op: OpIx,
    pub(crate) kv: Option<KvUse>,
    pub(crate) stream_inputs: SmallVec<[(Port, StreamIx); 1]>,
    pub(crate) stream_outputs: Vec<OutputBinding>,
    /// Whether it stands in a loop.
    pub(crate) looped: bool,
}

/// An output that leads to a stream.
#[derive(Debug)]
pub(crate) struct OutputBinding {
    pub(crate) port: Port,
    pub(crate) stream: StreamIx,
    /// Whether the output leads elsewhere as well.
    pub(crate) copied: bool,
}

/// A stream's ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamBinding {
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// The binding that consumes it.
    pub(crate) consumer: usize,
}

/// A model can't be served as it is bound.
#[derive(Debug, thiserror::Error)]
pub enum ServedError {
    /// A graph node has no binding for a walk that visits it.
    #[error("node `{node}` has no binding for walk `{walk}`")]
    Unbound {
        /// The node.
        node: NodeName,
        /// The walk.
        walk: WalkName,
    },
    /// Walks that consume one stream are bound apart: its items could only go to one of them.
    #[error("walks that consume stream `{0}` are bound to different nodes")]
    SplitStream(StreamName),
    /// A step names an op that the component does not have.
    #[error("component `{component}` has no op `{op}`")]
    NoSuchOp {
        /// The component.
        component: ComponentId,
        /// The op.
        op: OpName,
    },
}

// --- impl Served ---

impl Served {
    /// Binds a model's graph nodes: each once for every walk that visits it.
    pub fn new(model: Arc<dyn Model>, bindings: Vec<Binding>) -> Result<Self, ServedError> {
        let graph = Arc::clone(model.graph());
        let steps: Vec<StepBinding> =
            graph.steps().map(|(ix, _)| bind_step(&graph, ix, &bindings)).collect::<Result<_, _>>()?;
        let streams = graph.streams().map(|(ix, _)| bind_stream(&graph, ix, &bindings, &steps));
        let streams = streams.collect::<Result<_, _>>()?;
        Ok(Self { model, bindings, steps, streams })
    }

    /// Returns the model.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }

    /// Returns the model's graph.
    pub fn graph(&self) -> &Arc<Graph> {
        self.model.graph()
    }

    /// Returns which node actors serve which graph node in which walks.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// Returns every node actor that may serve the model.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIx> {
        self.bindings.iter().flat_map(|binding| binding.replicas.iter().copied())
    }

    pub(crate) fn step(&self, ix: StepIx) -> &StepBinding {
        &self.steps[ix.index()]
    }

    pub(crate) fn stream(&self, ix: StreamIx) -> &StreamBinding {
        &self.streams[ix.index()]
    }

    /// Picks the replica of a binding that has the least waiting, live ones before those that start.
    /// Says why when none will come.
    pub(crate) fn pick(&self, slot: usize, key: RequestKey, routes: &Routes) -> Result<NodeIx, Arc<str>> {
        let replicas = &self.bindings[slot].replicas;
        let mut best: Option<((bool, u64), NodeIx)> = None;
        let mut reason = Arc::from("no replica");
        // Equals are taken in turn.
        let turn = usize::try_from(key.id % (replicas.len() as u64).max(1)).unwrap_or(0);
        for at in 0..replicas.len() {
            let node = replicas[(turn + at) % replicas.len()];
            let starting = match routes.route(node) {
                Route::Live(..) => false,
                Route::Starting => true,
                Route::Down(why) => {
                    reason = why;
                    continue;
                }
            };
            let rank = (starting, routes.progress(node).waiting());
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, node));
            }
        }
        best.map(|(_, node)| node).ok_or(reason)
    }

    /// Returns the label that keeps sequences of graph nodes apart that share a component.
    pub(crate) fn label(&self, slot: usize) -> u8 {
        let Binding { node, component, .. } = &self.bindings[slot];
        let before = self.graph().nodes().take_while(|(name, _)| *name != node).filter(|(_, id)| *id == component);
        u8::try_from(before.count()).unwrap_or(u8::MAX)
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("model", &self.model.id()).finish_non_exhaustive()
    }
}

// --- impl BoundWalks ---

impl BoundWalks {
    fn contain(&self, walk: &WalkName) -> bool {
        match self {
            Self::All => true,
            Self::Only(walks) => walks.contains(walk),
        }
    }
}

fn bind_step(graph: &Graph, ix: StepIx, bindings: &[Binding]) -> Result<StepBinding, ServedError> {
    let step = graph.step(ix);
    let walk = &graph.walk(step.walk).name;
    let slot = bindings.iter().position(|binding| binding.node == step.node && binding.walks.contain(walk));
    let slot = slot.ok_or_else(|| ServedError::Unbound { node: step.node.clone(), walk: walk.clone() })?;
    let ops = &bindings[slot].ops;
    let unknown = || ServedError::NoSuchOp { component: step.component.clone(), op: step.op.clone() };
    let op = ops.iter().position(|decl| decl.name == step.op).ok_or_else(unknown)?;
    let elsewhere = |port: &Port| {
        let plain = |target: &Target| !matches!(target, Target::Stream(_));
        step.targets().any(|(from, target)| from == port && plain(target))
    };
    let outputs = step.stream_outputs.iter().enumerate().map(|(at, (port, stream))| {
        let again = step.stream_outputs[at + 1..].iter().any(|(later, _)| later == port);
        OutputBinding { port: port.clone(), stream: *stream, copied: again || elsewhere(port) }
    });
    Ok(StepBinding {
        slot,
        op: OpIx(u16::try_from(op).map_err(|_| unknown())?),
        kv: ops[op].kv,
        stream_inputs: step.stream_inputs.iter().cloned().collect(),
        stream_outputs: outputs.collect(),
        looped: !step.loops.is_empty(),
    })
}

fn bind_stream(
    graph: &Graph,
    ix: StreamIx,
    bindings: &[Binding],
    steps: &[StepBinding],
) -> Result<StreamBinding, ServedError> {
    let stream = graph.stream(ix);
    let consumers = || graph.consumers(ix).map(|step| steps[step.index()].slot);
    let mut served = consumers().filter(|slot| !bindings[*slot].replicas.is_empty());
    let consumer = served.next();
    if served.any(|other| Some(other) != consumer) {
        return Err(ServedError::SplitStream(stream.name.clone()));
    }
    let consumer = consumer.or_else(|| consumers().next()).expect("invariant: a valid stream has a consumer");
    Ok(StreamBinding { from: partition_of(graph, &stream.from), to: partition_of(graph, &stream.to), consumer })
}

/// Returns a partition's place in its graph.
pub(crate) fn partition_of(graph: &Graph, name: &PartitionName) -> u16 {
    let at = graph.partitions().position(|partition| partition == name);
    at.and_then(|at| u16::try_from(at).ok()).expect("invariant: a valid graph declares its few partitions")
}
