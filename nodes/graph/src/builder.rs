//! Builds a graph from its declaration, or says everything that is wrong with it.

mod flatten;
mod streams;
#[cfg(test)]
mod tests;
mod wiring;

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use crate::chunk::AtEnd;
use crate::graph::{Graph, GraphLoop, GraphStep, GraphWalk, StepInput};
use crate::layout::Layout;
use crate::names::{
    ComponentId, KeptName, LoopIx, NodeName, PartitionName, Port, StreamIx, StreamName, WalkIx, WalkName,
};
use crate::problems::{GraphProblems, ProblemKind, Problems};
use crate::section::{Fragment, Section, Source, Target};
use crate::stream::Stream;
use flatten::FlatWalk;

/// Collects the declaration of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    nodes: Vec<(NodeName, ComponentId)>,
    partitions: Vec<PartitionName>,
    streams: Vec<Stream>,
    walks: Vec<Declared>,
    releases: Vec<(WalkName, KeptName)>,
}

/// A walk as declared.
#[derive(Clone, Debug)]
struct Declared {
    partition: PartitionName,
    name: WalkName,
    section: Section,
}

// --- impl GraphBuilder ---

impl GraphBuilder {
    /// Starts an empty declaration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a node and the component that computes it.
    pub fn node(&mut self, name: impl Into<NodeName>, component: impl Into<ComponentId>) -> &mut Self {
        self.nodes.push((name.into(), component.into()));
        self
    }

    /// Declares a partition.
    pub fn partition(&mut self, name: impl Into<PartitionName>) -> &mut Self {
        self.partitions.push(name.into());
        self
    }

    /// Declares a stream between two partitions.
    pub fn stream(&mut self, stream: Stream) -> &mut Self {
        self.streams.push(stream);
        self
    }

    /// Declares a walk of a partition.
    pub fn walk(
        &mut self,
        partition: impl Into<PartitionName>,
        name: impl Into<WalkName>,
        section: impl Into<Section>,
    ) -> &mut Self {
        let (partition, name, section) = (partition.into(), name.into(), section.into());
        self.walks.push(Declared { partition, name, section });
        self
    }

    /// Releases a kept value when a walk ends.
    pub fn release(&mut self, walk: impl Into<WalkName>, kept: impl Into<KeptName>) -> &mut Self {
        self.releases.push((walk.into(), kept.into()));
        self
    }

    /// Adds a fragment's nodes and streams, where they aren't there already, and returns its
    /// section for use in walks.
    pub fn include(&mut self, fragment: Fragment) -> Section {
        for node in fragment.nodes {
            if !self.nodes.contains(&node) {
                self.nodes.push(node);
            }
        }
        for stream in fragment.streams {
            if !self.streams.contains(&stream) {
                self.streams.push(stream);
            }
        }
        fragment.section
    }

    /// Builds the graph, or reports every problem of it.
    pub fn build(&self) -> Result<Arc<Graph>, GraphProblems> {
        let mut problems = Problems::default();
        let mut graph = Graph {
            nodes: self.unique_nodes(&mut problems),
            partitions: self.unique_partitions(&mut problems),
            streams: self.unique_streams(&mut problems),
            walks: IndexMap::new(),
            steps: Vec::new(),
            loops: Vec::new(),
        };
        for declared in &self.walks {
            self.add_walk(&mut graph, declared, &mut problems);
        }
        self.check_partitions(&mut problems);
        self.check_kept(&graph, &mut problems);
        streams::check(&graph, &mut problems);
        problems.into_result()?;
        Ok(Arc::new(graph))
    }

    fn add_walk(&self, graph: &mut Graph, declared: &Declared, problems: &mut Problems) {
        let path = format!("walk `{}`", declared.name);
        if graph.walks.contains_key(&declared.name) {
            problems.add(ProblemKind::Duplicate, &path, "another walk has this name");
            return;
        }
        if !graph.partitions.contains(&declared.partition) {
            let text = format!("partition `{}` is not declared", declared.partition);
            problems.add(ProblemKind::Unknown, &path, text);
        }
        let flat = FlatWalk::of(&declared.section, &path, problems);
        for step in &flat.steps {
            if !graph.nodes.contains_key(&step.step.node) {
                let text = format!("node `{}` is not declared", step.step.node);
                problems.add(ProblemKind::Unknown, &step.path, text);
            }
        }
        let loops = graph.loops.len();
        let mut layout = wiring::lay_out(&flat, &path, loops, problems);
        let walk = WalkIx::at(graph.walks.len());
        add_loops(graph, &flat, walk);
        let first_step = graph.steps.len();
        add_steps(graph, &flat, &mut layout, (walk, loops), problems);
        let sources = || flat.steps.iter().flat_map(|step| &step.step.sources);
        let targets = || flat.steps.iter().flat_map(|step| &step.step.targets);
        graph.walks.insert(
            declared.name.clone(),
            GraphWalk {
                name: declared.name.clone(),
                partition: declared.partition.clone(),
                inputs: distinct(sources().filter_map(|(_, source)| match source {
                    Source::Input(name) => Some(name),
                    _ => None,
                })),
                results: layout.results.clone(),
                takes: distinct(sources().filter_map(|(_, source)| match source {
                    Source::Kept(name) => Some(name),
                    _ => None,
                })),
                keeps: distinct(targets().filter_map(|(_, target)| match target {
                    Target::Keep(name) => Some(name),
                    _ => None,
                })),
                releases: distinct(
                    self.releases.iter().filter(|(walk, _)| *walk == declared.name).map(|(_, kept)| kept),
                ),
                first_step,
                layout,
            },
        );
    }

    fn unique_nodes(&self, problems: &mut Problems) -> IndexMap<NodeName, ComponentId> {
        let mut nodes = IndexMap::new();
        for (name, component) in &self.nodes {
            if let Some(first) = nodes.insert(name.clone(), component.clone()) {
                let text = format!("declared for component `{first}` and again for `{component}`");
                problems.add(ProblemKind::Duplicate, format!("node `{name}`"), text);
            }
        }
        nodes
    }

    fn unique_partitions(&self, problems: &mut Problems) -> IndexSet<PartitionName> {
        let mut partitions = IndexSet::new();
        for name in &self.partitions {
            if !partitions.insert(name.clone()) {
                let path = format!("partition `{name}`");
                problems.add(ProblemKind::Duplicate, path, "declared twice");
            }
        }
        partitions
    }

    fn unique_streams(&self, problems: &mut Problems) -> IndexMap<StreamName, Stream> {
        let mut streams = IndexMap::new();
        for stream in &self.streams {
            if streams.insert(stream.name.clone(), stream.clone()).is_some() {
                let path = format!("stream `{}`", stream.name);
                problems.add(ProblemKind::Duplicate, path, "declared twice");
            }
        }
        streams
    }

    fn check_partitions(&self, problems: &mut Problems) {
        for name in &self.partitions {
            if !self.walks.iter().any(|walk| walk.partition == *name) {
                problems.add(ProblemKind::Empty, format!("partition `{name}`"), "no walk belongs to it");
            }
        }
    }

    fn check_kept(&self, graph: &Graph, problems: &mut Problems) {
        let kept = |name: &KeptName| graph.walks.values().any(|walk| walk.keeps.contains(name));
        for walk in graph.walks.values() {
            for name in walk.takes.iter().filter(|name| !kept(name)) {
                let text = format!("takes kept value `{name}`, which no step keeps");
                problems.add(ProblemKind::Kept, format!("walk `{}`", walk.name), text);
            }
        }
        for (walk, name) in &self.releases {
            let path = format!("walk `{walk}`");
            if !graph.walks.contains_key(walk) {
                problems.add(ProblemKind::Unknown, &path, format!("is to release `{name}`, but isn't declared"));
            } else if !kept(name) {
                problems.add(ProblemKind::Kept, &path, format!("releases kept value `{name}`, which no step keeps"));
            }
        }
    }
}

fn add_loops(graph: &mut Graph, flat: &FlatWalk, walk: WalkIx) {
    let first = graph.loops.len();
    for scope in &flat.scopes {
        let Some(repeats) = &scope.repeats else { continue };
        graph.loops.push(GraphLoop {
            name: repeats.name.clone(),
            walk,
            parent: (scope.parent > 0).then(|| LoopIx::at(first + scope.parent - 1)),
            bound: repeats.bound.clone(),
            ends: repeats.ends,
        });
    }
}

fn add_steps(
    graph: &mut Graph,
    flat: &FlatWalk,
    layout: &mut Layout,
    (walk, first_loop): (WalkIx, usize),
    problems: &mut Problems,
) {
    for (index, flat_step) in flat.steps.iter().enumerate() {
        let step = &flat_step.step;
        let mut find = |port: &Port, name: &StreamName| {
            let found = graph.streams.get_index_of(name).map(StreamIx::at);
            if found.is_none() {
                let text = format!("port `{port}`: stream `{name}` is not declared");
                problems.add(ProblemKind::Unknown, &flat_step.path, text);
            }
            found.map(|ix| (port.clone(), ix))
        };
        let stream_inputs = step.sources.iter().filter_map(|(port, source)| match source {
            Source::Stream(name) => find(port, name),
            _ => None,
        });
        let stream_inputs: Vec<_> = stream_inputs.collect();
        let stream_outputs = step.targets.iter().filter_map(|(port, target)| match target {
            Target::Stream(name) => find(port, name),
            _ => None,
        });
        let stream_outputs = stream_outputs.collect();
        layout.steps[index].consumes = stream_inputs.iter().any(|(_, ix)| graph.stream(*ix).at_end == AtEnd::Last);
        let slots = &layout.slots[layout.steps[index].slots.clone()];
        graph.steps.push(GraphStep {
            name: step.name.clone(),
            walk,
            node: step.node.clone(),
            op: step.op.clone(),
            component: graph.nodes.get(&step.node).cloned().unwrap_or_else(|| ComponentId::from("")),
            loops: flat.loops_around(flat_step.scope).map(|scope| LoopIx::at(first_loop + scope - 1)).collect(),
            inputs: slots.iter().map(|slot| StepInput { port: slot.port.clone(), optional: slot.optional }).collect(),
            stream_inputs,
            stream_outputs,
            targets: step.targets.clone(),
            stops: step.stops.clone(),
        });
    }
}

fn distinct<'a, T: Clone + Eq + std::hash::Hash + 'a>(names: impl Iterator<Item = &'a T>) -> Vec<T> {
    names.collect::<IndexSet<_>>().into_iter().cloned().collect()
}
