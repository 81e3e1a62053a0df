//! A model as it is deployed: its graph's nodes bound to node addresses, everything a step needs looked up once.

use std::sync::Arc;

use mstar_contract::{KvUse, Model, OpDecl, Recovery, RequestKey};
use mstar_graph::{ComponentId, Graph, NodeName, OpName, PartitionName, Port, StepIx, StreamIx, Target};
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

/// A graph node's replicas and what its component declares.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The graph's node.
    pub node: NodeName,
    /// Its component.
    pub component: ComponentId,
    /// The node actors that may serve it. A request sticks to one of them. None where no served walk visits the node.
    pub replicas: Vec<NodeIx>,
    /// The component's ops.
    pub ops: Arc<[OpDecl]>,
    /// What to do when a request's state there is lost.
    pub recovery: Recovery,
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
    /// A graph node has no binding.
    #[error("node `{0}` has no binding")]
    Unbound(NodeName),
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
    /// Binds a model's graph nodes, each exactly once.
    pub fn new(model: Arc<dyn Model>, bindings: Vec<Binding>) -> Result<Self, ServedError> {
        let graph = Arc::clone(model.graph());
        for (node, _) in graph.nodes() {
            if !bindings.iter().any(|binding| binding.node == *node) {
                return Err(ServedError::Unbound(node.clone()));
            }
        }
        let steps = graph.steps().map(|(ix, _)| bind_step(&graph, ix, &bindings)).collect::<Result<_, _>>()?;
        let streams = graph.streams().map(|(ix, _)| bind_stream(&graph, ix, &bindings)).collect();
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

    /// Returns which node actors serve which graph node.
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
        let component = &self.bindings[slot].component;
        let before = self.bindings[..slot].iter().filter(|binding| binding.component == *component).count();
        u8::try_from(before).unwrap_or(u8::MAX)
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").field("model", &self.model.id()).finish_non_exhaustive()
    }
}

fn bind_step(graph: &Graph, ix: StepIx, bindings: &[Binding]) -> Result<StepBinding, ServedError> {
    let step = graph.step(ix);
    let slot = slot_of(bindings, &step.node);
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

fn bind_stream(graph: &Graph, ix: StreamIx, bindings: &[Binding]) -> StreamBinding {
    let stream = graph.stream(ix);
    let consumer = graph.consumers(ix).next().expect("invariant: a valid stream has a consumer");
    StreamBinding {
        from: partition_of(graph, &stream.from),
        to: partition_of(graph, &stream.to),
        consumer: slot_of(bindings, &graph.step(consumer).node),
    }
}

/// Returns a partition's place in its graph.
pub(crate) fn partition_of(graph: &Graph, name: &PartitionName) -> u16 {
    let at = graph.partitions().position(|partition| partition == name);
    at.and_then(|at| u16::try_from(at).ok()).expect("invariant: a valid graph declares its few partitions")
}

fn slot_of(bindings: &[Binding], node: &NodeName) -> usize {
    bindings.iter().position(|binding| binding.node == *node).expect("invariant: every graph node is bound")
}
