//! Checks that every stream joins two partitions, with one node at either end.

use indexmap::IndexSet;

use crate::chunk::AtEnd;
use crate::graph::{Graph, GraphStep};
use crate::names::{LoopIx, NodeName, PartitionName, StreamIx};
use crate::problems::{ProblemKind, Problems};
use crate::section::Bound;
use crate::stream::Stream;

/// Reports what is wrong with a graph's streams.
pub(super) fn check(graph: &Graph, problems: &mut Problems) {
    for (ix, stream) in graph.streams() {
        let path = format!("stream `{}`", stream.name);
        check_policy(stream, &path, problems);
        for partition in [&stream.from, &stream.to] {
            if !graph.partitions.contains(partition) {
                let text = format!("partition `{partition}` is not declared");
                problems.add(ProblemKind::Unknown, &path, text);
            }
        }
        if stream.from == stream.to {
            let text = format!("stays within partition `{}`", stream.from);
            problems.add(ProblemKind::Stream, &path, text);
        }
        let producers = graph.producers(ix).map(|step| graph.step(step));
        check_end(graph, producers, "producer", &stream.from, &path, problems);
        let consumers = graph.consumers(ix).map(|step| graph.step(step));
        check_end(graph, consumers, "consumer", &stream.to, &path, problems);
    }
    for (ix, looped) in graph.loops() {
        if looped.bound == Bound::Stream && !consumes(graph, ix) {
            let path = format!("walk `{}` / loop `{}`", graph.walk(looped.walk).name, looped.name);
            let text = "runs until a stream ends, but no step in it takes a stream that ends";
            problems.add(ProblemKind::Bound, path, text);
        }
    }
}

fn check_policy(stream: &Stream, path: &str, problems: &mut Problems) {
    if let Some(flaw) = stream.policy.flaw() {
        problems.add(ProblemKind::Chunk, path, flaw);
    } else if stream.credit < stream.policy.largest() {
        let (credit, largest) = (stream.credit, stream.policy.largest());
        let text = format!("a credit of {credit} items never lets a chunk of {largest} arrive");
        problems.add(ProblemKind::Chunk, path, text);
    }
}

fn check_end<'a>(
    graph: &Graph,
    steps: impl Iterator<Item = &'a GraphStep>,
    role: &str,
    partition: &PartitionName,
    path: &str,
    problems: &mut Problems,
) {
    let mut nodes: IndexSet<&NodeName> = IndexSet::new();
    for step in steps {
        nodes.insert(&step.node);
        let walk = graph.walk(step.walk);
        if walk.partition != *partition {
            let text = format!(
                "its {role} is of partition `{partition}`, but step `{}` of walk `{}` is of partition `{}`",
                step.name, walk.name, walk.partition
            );
            problems.add(ProblemKind::Stream, path, text);
        }
    }
    if nodes.is_empty() {
        problems.add(ProblemKind::Stream, path, format!("has no {role}"));
    }
    if nodes.len() > 1 {
        let nodes: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
        problems.add(ProblemKind::Stream, path, format!("has more than one {role}: nodes {}", nodes.join(", ")));
    }
}

fn consumes(graph: &Graph, looped: LoopIx) -> bool {
    let ends = |ix: StreamIx| graph.stream(ix).at_end == AtEnd::Last;
    graph
        .steps()
        .filter(|(_, step)| step.loops.contains(&looped))
        .any(|(_, step)| step.stream_inputs.iter().any(|(_, stream)| ends(*stream)))
}
