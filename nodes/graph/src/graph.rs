//! The graph: immutable, validated, shared by all requests of a model.

use indexmap::{IndexMap, IndexSet};

use crate::layout::Layout;
use crate::names::{
    ComponentId, KeptName, LoopIx, LoopName, Modality, NodeName, OpName, PartitionName, Port, StepIx, StepName,
    StreamIx, StreamName, WalkIx, WalkName,
};
use crate::problems::{GraphProblems, ProblemKind, Problems};
use crate::section::{Bound, Carries, Ends, Target};
use crate::stream::Stream;

/// Nodes joined by edges, and the walks over them. Never changes after it was built.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) nodes: IndexMap<NodeName, ComponentId>,
    pub(crate) partitions: IndexSet<PartitionName>,
    pub(crate) streams: IndexMap<StreamName, Stream>,
    pub(crate) walks: IndexMap<WalkName, GraphWalk>,
    pub(crate) steps: Vec<GraphStep>,
    pub(crate) loops: Vec<GraphLoop>,
}

/// A walk of a graph.
#[derive(Clone, Debug)]
pub struct GraphWalk {
    /// The walk's name.
    pub name: WalkName,
    /// The partition that walks it.
    pub partition: PartitionName,
    /// Inputs that the plan gives to it.
    pub inputs: Vec<Port>,
    /// Results that the plan sees at its end; each may be absent.
    pub results: Vec<Port>,
    /// Kept values that it takes.
    pub takes: Vec<KeptName>,
    /// Kept values that it keeps.
    pub keeps: Vec<KeptName>,
    /// Kept values that are released at its end.
    pub releases: Vec<KeptName>,
    pub(crate) first_step: usize,
    pub(crate) layout: Layout,
}

/// A step of a graph.
#[derive(Clone, Debug)]
pub struct GraphStep {
    /// The step's name in its walk.
    pub name: StepName,
    /// Its walk.
    pub walk: WalkIx,
    /// The node that computes.
    pub node: NodeName,
    /// The entry point of the node.
    pub op: OpName,
    /// The node's component.
    pub component: ComponentId,
    /// The loops around it, from the outside in.
    pub loops: Vec<LoopIx>,
    /// Inputs that the cursor hands over when it fires.
    pub inputs: Vec<StepInput>,
    /// Inputs that take chunks of a stream.
    pub stream_inputs: Vec<(Port, StreamIx)>,
    /// Outputs that put items into a stream.
    pub stream_outputs: Vec<(Port, StreamIx)>,
    pub(crate) targets: Vec<(Port, Target)>,
    pub(crate) stops: Vec<(Port, LoopName)>,
}

/// An input that the cursor hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepInput {
    /// The input's name.
    pub port: Port,
    /// The step fires without it when nothing will come.
    pub optional: bool,
}

/// A loop of a graph.
#[derive(Clone, Debug)]
pub struct GraphLoop {
    /// The loop's name.
    pub name: LoopName,
    /// Its walk.
    pub walk: WalkIx,
    /// The loop around it.
    pub parent: Option<LoopIx>,
    /// How many iterations it has at most.
    pub bound: Bound,
    /// What ends it before its bound.
    pub ends: Ends,
}

/// What a component declares of one op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpPorts {
    /// Its inputs.
    pub inputs: Vec<PortDecl>,
    /// Its possible outputs.
    pub outputs: Vec<Port>,
    /// Its possible signals.
    pub signals: Vec<Port>,
}

/// An input as a component declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDecl {
    /// The input's name.
    pub name: Port,
    /// The op runs without it.
    pub optional: bool,
}

// --- impl Graph ---

impl Graph {
    /// Returns the nodes with their components, in the order of their declaration.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&NodeName, &ComponentId)> {
        self.nodes.iter()
    }

    /// Returns the component of a node.
    pub fn component(&self, node: &NodeName) -> Option<&ComponentId> {
        self.nodes.get(node)
    }

    /// Returns the partitions.
    pub fn partitions(&self) -> impl ExactSizeIterator<Item = &PartitionName> {
        self.partitions.iter()
    }

    /// Finds a walk by its name.
    pub fn find_walk(&self, name: &str) -> Option<WalkIx> {
        self.walks.get_index_of(name).map(WalkIx::at)
    }

    /// Finds a stream by its name.
    pub fn find_stream(&self, name: &str) -> Option<StreamIx> {
        self.streams.get_index_of(name).map(StreamIx::at)
    }

    /// Finds a step of a walk by its name.
    pub fn find_step(&self, walk: WalkIx, name: &str) -> Option<StepIx> {
        self.walk_steps(walk).find(|ix| self.step(*ix).name == name)
    }

    /// Returns a walk.
    pub fn walk(&self, ix: WalkIx) -> &GraphWalk {
        &self.walks[ix.index()]
    }

    /// Returns a step.
    pub fn step(&self, ix: StepIx) -> &GraphStep {
        &self.steps[ix.index()]
    }

    /// Returns a stream.
    pub fn stream(&self, ix: StreamIx) -> &Stream {
        &self.streams[ix.index()]
    }

    /// Returns a loop.
    pub fn loop_at(&self, ix: LoopIx) -> &GraphLoop {
        &self.loops[ix.index()]
    }

    /// Returns all walks.
    pub fn walks(&self) -> impl ExactSizeIterator<Item = (WalkIx, &GraphWalk)> {
        self.walks.values().enumerate().map(|(ix, walk)| (WalkIx::at(ix), walk))
    }

    /// Returns all steps of all walks.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = (StepIx, &GraphStep)> {
        self.steps.iter().enumerate().map(|(ix, step)| (StepIx::at(ix), step))
    }

    /// Returns all streams.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = (StreamIx, &Stream)> {
        self.streams.values().enumerate().map(|(ix, stream)| (StreamIx::at(ix), stream))
    }

    /// Returns all loops of all walks.
    pub fn loops(&self) -> impl ExactSizeIterator<Item = (LoopIx, &GraphLoop)> {
        self.loops.iter().enumerate().map(|(ix, looped)| (LoopIx::at(ix), looped))
    }

    /// Returns the steps of a walk, in the order of their declaration.
    pub fn walk_steps(&self, ix: WalkIx) -> impl ExactSizeIterator<Item = StepIx> + use<> {
        let walk = self.walk(ix);
        (walk.first_step..walk.first_step + walk.layout.steps.len()).map(StepIx::at)
    }

    /// Returns the steps that put items into a stream, over all walks.
    pub fn producers(&self, stream: StreamIx) -> impl Iterator<Item = StepIx> {
        self.steps().filter(move |(_, step)| step.stream_outputs.iter().any(|(_, ix)| *ix == stream)).map(|(ix, _)| ix)
    }

    /// Returns the steps that take chunks of a stream, over all walks.
    pub fn consumers(&self, stream: StreamIx) -> impl Iterator<Item = StepIx> {
        self.steps().filter(move |(_, step)| step.stream_inputs.iter().any(|(_, ix)| *ix == stream)).map(|(ix, _)| ix)
    }

    /// Compares every step's wiring with what its component declares of the op.
    pub fn check_ports(&self, lookup: impl Fn(&ComponentId, &OpName) -> Option<OpPorts>) -> Result<(), GraphProblems> {
        let mut problems = Problems::default();
        for step in &self.steps {
            let path = format!("walk `{}` / step `{}`", self.walk(step.walk).name, step.name);
            match lookup(&step.component, &step.op) {
                Some(ports) => step.check_ports(&ports, &path, &mut problems),
                None => {
                    let text = format!("component `{}` has no op `{}`", step.component, step.op);
                    problems.add(ProblemKind::Unknown, &path, text);
                }
            }
        }
        problems.into_result()
    }
}

// --- impl GraphStep ---

impl GraphStep {
    /// Returns what leaves the step for the client.
    pub fn client_outputs(&self) -> impl Iterator<Item = (&Port, Modality)> {
        self.targets.iter().filter_map(|(port, target)| match target {
            Target::Client(modality) => Some((port, *modality)),
            _ => None,
        })
    }

    /// Returns every output that is wired, with its target.
    pub fn targets(&self) -> impl Iterator<Item = (&Port, &Target)> {
        self.targets.iter().map(|(port, target)| (port, target))
    }

    /// Returns the loops that a signal of the op ends.
    pub fn stopped_by<'a>(&'a self, signal: &'a str) -> impl Iterator<Item = &'a LoopName> {
        self.stops.iter().filter(move |(port, _)| *port == signal).map(|(_, name)| name)
    }

    fn check_ports(&self, ports: &OpPorts, path: &str, problems: &mut Problems) {
        let op = format!("`{}` of component `{}`", self.op, self.component);
        let mut mismatch = |text: String| problems.add(ProblemKind::Ports, path, text);
        let streamed = self.stream_inputs.iter().map(|(port, _)| (port, false));
        let stepped = self.inputs.iter().map(|input| (&input.port, input.optional));
        let wired: Vec<(&Port, bool)> = stepped.chain(streamed).collect();
        for (port, optional) in &wired {
            match ports.inputs.iter().find(|decl| decl.name == **port) {
                None => mismatch(format!("op {op} has no input `{port}`")),
                Some(decl) if *optional && !decl.optional => {
                    mismatch(format!("op {op} doesn't run without its input `{port}`"));
                }
                Some(_) => {}
            }
        }
        for decl in ports.inputs.iter().filter(|decl| !decl.optional) {
            if !wired.iter().any(|(port, _)| **port == decl.name) {
                mismatch(format!("input `{}` of op {op} is never fed", decl.name));
            }
        }
        for (port, target) in &self.targets {
            let signal = matches!(target, Target::Step { carries: Carries::Signal, .. });
            let known = ports.outputs.contains(port) || signal && ports.signals.contains(port);
            if !known {
                mismatch(format!("op {op} has no output `{port}`"));
            }
        }
        for (signal, _) in self.stops.iter().filter(|(signal, _)| !ports.signals.contains(signal)) {
            mismatch(format!("op {op} has no signal `{signal}`"));
        }
    }
}

// --- impl PortDecl ---

impl PortDecl {
    /// Declares an input that the op can't run without.
    pub fn required(name: impl Into<Port>) -> Self {
        Self { name: name.into(), optional: false }
    }

    /// Declares an input that the op can run without.
    pub fn optional(name: impl Into<Port>) -> Self {
        Self { name: name.into(), optional: true }
    }
}

impl OpPorts {
    /// Declares an op by the names of its required inputs, its outputs and its signals.
    pub fn new<'a>(
        inputs: impl IntoIterator<Item = &'a str>,
        outputs: impl IntoIterator<Item = &'a str>,
        signals: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        OpPorts {
            inputs: inputs.into_iter().map(PortDecl::required).collect(),
            outputs: outputs.into_iter().map(Port::from).collect(),
            signals: signals.into_iter().map(Port::from).collect(),
        }
    }

    /// Adds an input that the op can run without.
    pub fn with_optional(mut self, name: impl Into<Port>) -> Self {
        self.inputs.push(PortDecl::optional(name));
        self
    }
}
