//! Random well-formed walks: any nesting of sections, edges wherever they are allowed, optional
//! inputs, loop-backs on inputs of their own and on inputs that are fed from further out, signals,
//! gathers, streams; and what each firing does, as a function of the seed, the step and the iteration.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mstar_graph::{
    Bound, Carries, ChunkPolicy, Graph, GraphBuilder, LoopName, Modality, Port, Section, Step, StepName, Stream,
    Target, When, dynamic_loop, parallel, repeat, sequential, step,
};
use proptest::prelude::*;

/// The shape of a walk.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Step,
    InOrder(Vec<Tree>),
    Beside(Vec<Tree>),
    Loop { times: u32, dynamic: bool, body: Box<Tree> },
}

/// A walk with its wiring.
#[derive(Debug)]
pub(crate) struct Wild {
    pub(crate) tree: Tree,
    pub(crate) steps: Vec<WildStep>,
    pub(crate) loops: Vec<WildLoop>,
    pub(crate) edges: Vec<WildEdge>,
    seed: u64,
}

/// A step.
#[derive(Debug, Default)]
pub(crate) struct WildStep {
    /// The loops around it, from the outside in.
    pub(crate) loops: Vec<usize>,
    place: Vec<(bool, usize)>,
    pub(crate) takes_input: bool,
    pub(crate) optional: Vec<String>,
    pub(crate) result: Option<usize>,
    pub(crate) client: Option<usize>,
    pub(crate) streamed: bool,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct WildLoop {
    /// `None`: until its stream ends.
    pub(crate) bound: Option<u32>,
    pub(crate) dynamic: bool,
    pub(crate) gather: Vec<(usize, usize)>,
}

/// An edge from one of a step's outputs to an input.
#[derive(Clone, Debug)]
pub(crate) struct WildEdge {
    pub(crate) from: usize,
    pub(crate) output: usize,
    pub(crate) to: usize,
    pub(crate) port: String,
    pub(crate) back: bool,
    pub(crate) signal: bool,
    /// How many loops are around both ends.
    pub(crate) level: usize,
}

/// What a firing does.
#[derive(Debug, Default)]
pub(crate) struct Deed {
    pub(crate) outputs: Vec<(usize, u64)>,
    pub(crate) signals: Vec<usize>,
    pub(crate) stops: Vec<usize>,
}

pub(crate) const OUTPUTS: usize = 3;

pub(crate) fn any_tree() -> impl Strategy<Value = Tree> {
    prop::collection::vec(tree(4), 1..4).prop_map(Tree::InOrder)
}

fn tree(depth: u32) -> BoxedStrategy<Tree> {
    if depth == 0 {
        return Just(Tree::Step).boxed();
    }
    let members = || prop::collection::vec(tree(depth - 1), 1..5);
    let body = (1..5u32, any::<bool>(), tree(depth - 1));
    prop_oneof![
        2 => Just(Tree::Step),
        2 => members().prop_map(Tree::InOrder),
        1 => members().prop_map(Tree::Beside),
        3 => body.prop_map(|(times, dynamic, body)| Tree::Loop { times, dynamic, body: Box::new(body) }),
    ]
    .boxed()
}

impl Wild {
    pub(crate) fn new(tree: Tree, seed: u64) -> Self {
        let mut wild = Wild { tree: tree.clone(), steps: Vec::new(), loops: Vec::new(), edges: Vec::new(), seed };
        wild.number(&tree, &mut Vec::new(), &mut Vec::new());
        for step in 0..wild.steps.len() {
            wild.equip(step);
        }
        for from in 0..wild.steps.len() {
            (0..wild.steps.len()).for_each(|to| wild.join(from, to));
        }
        (0..wild.loops.len()).for_each(|index| wild.equip_loop(index));
        wild
    }

    fn number(&mut self, tree: &Tree, loops: &mut Vec<usize>, place: &mut Vec<(bool, usize)>) {
        match tree {
            Tree::Step => {
                self.steps.push(WildStep { loops: loops.clone(), place: place.clone(), ..WildStep::default() });
            }
            Tree::InOrder(members) | Tree::Beside(members) => {
                for (index, member) in members.iter().enumerate() {
                    place.push((matches!(tree, Tree::InOrder(_)), index));
                    self.number(member, loops, place);
                    place.pop();
                }
            }
            Tree::Loop { times, dynamic, body } => {
                loops.push(self.loops.len());
                self.loops.push(WildLoop { bound: Some(*times), dynamic: *dynamic, gather: Vec::new() });
                self.number(body, loops, place);
                loops.pop();
            }
        }
    }

    /// Draws a number below `n` from the seed and what it is for.
    fn draw(&self, n: u64, what: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        hasher.finish() % n
    }

    fn equip(&mut self, step: usize) {
        let output = |wild: &Self, what: &str| {
            let drawn = wild.draw(9, (what, step)) as usize;
            (drawn < OUTPUTS).then_some(drawn)
        };
        let (result, client) = (output(self, "result"), output(self, "client"));
        let takes_input = self.draw(3, ("input", step)) == 0;
        let streamed = self.draw(6, ("streamed", step)) == 0;
        let entry = &mut self.steps[step];
        entry.result = result;
        entry.client = client;
        entry.takes_input = takes_input;
        entry.streamed = streamed;
    }

    fn join(&mut self, from: usize, to: usize) {
        let level = self.common(from, to);
        let edge = |wild: &Self, port: String, back: bool| WildEdge {
            from,
            output: wild.draw(OUTPUTS as u64, ("output", from, to, back)) as usize,
            to,
            port,
            back,
            signal: wild.draw(5, ("signal", from, to, back)) == 0,
            level,
        };
        if self.before(from, to) && self.draw(5, ("edge", from, to)) < 2 {
            let forward = edge(self, format!("from {from}"), false);
            if self.draw(4, ("optional", from, to)) == 0 {
                self.steps[to].optional.push(forward.port.clone());
            }
            self.edges.push(forward);
        }
        if level > 0 && self.draw(6, ("back", from, to)) == 0 {
            let port = match self.outer_port(to, level) {
                Some(port) if self.draw(2, ("onto", from, to)) == 0 => port,
                _ => {
                    let port = format!("back {from}");
                    self.steps[to].optional.push(port.clone());
                    port
                }
            };
            let back = edge(self, port, true);
            self.edges.push(back);
        }
    }

    /// Finds an input that is fed from further out than `level`, and by no loop-back of that level.
    fn outer_port(&self, to: usize, level: usize) -> Option<String> {
        let mut ports = vec!["input".to_owned()];
        ports.retain(|_| self.steps[to].takes_input);
        let outer = self.edges.iter().filter(|edge| edge.to == to && !edge.back && edge.level < level);
        ports.extend(outer.map(|edge| edge.port.clone()));
        let taken = |port: &str| self.edges.iter().any(|e| e.to == to && e.port == port && e.back && e.level == level);
        ports.into_iter().rev().find(|port| !taken(port))
    }

    fn equip_loop(&mut self, index: usize) {
        let inside = |step: &usize| self.steps[*step].loops.contains(&index);
        let mut gather = Vec::new();
        for step in (0..self.steps.len()).filter(inside) {
            let depth = self.steps[step].loops.iter().position(|known| *known == index).unwrap_or(0) + 1;
            for output in 0..OUTPUTS {
                let leaves = self.steps[step].result == Some(output)
                    || self.edges.iter().any(|e| e.from == step && e.output == output && e.level < depth);
                if leaves && self.draw(3, ("gather", index, step, output)) == 0 {
                    gather.push((step, output));
                }
            }
        }
        let over_stream = (0..self.steps.len()).filter(inside).any(|step| self.steps[step].streamed);
        let unbounded = over_stream && self.draw(2, ("unbounded", index)) == 0;
        self.loops[index].gather = gather;
        if unbounded {
            self.loops[index].bound = None;
        }
    }

    fn common(&self, a: usize, b: usize) -> usize {
        let pairs = self.steps[a].loops.iter().zip(&self.steps[b].loops);
        pairs.take_while(|(a, b)| a == b).count()
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let mut pairs = self.steps[a].place.iter().zip(&self.steps[b].place);
        pairs.find(|(a, b)| a.1 != b.1).is_some_and(|(a, b)| a.0 && a.1 < b.1)
    }

    /// Returns what a firing of a step does in an iteration.
    pub(crate) fn deed(&self, step: usize, iteration: &[u32]) -> Deed {
        let mut deed = Deed::default();
        for output in 0..OUTPUTS {
            match self.draw(14, ("deed", step, iteration, output)) {
                0 => {}
                1 => deed.signals.push(output),
                _ => deed.outputs.push((output, self.draw(u64::MAX, ("value", step, iteration, output)))),
            }
        }
        let stoppable = self.steps[step].loops.iter().filter(|index| self.loops[**index].dynamic);
        deed.stops = stoppable.filter(|index| self.draw(12, ("stop", step, iteration, index)) == 0).copied().collect();
        deed
    }

    /// Reports whether one of the loops around a step gathers an output of it.
    pub(crate) fn gathers(&self, step: usize, output: usize, level: usize) -> bool {
        let index = self.steps[step].loops[level];
        self.loops[index].gather.contains(&(step, output))
    }

    /// Returns after how many chunks the stream of a step ends.
    pub(crate) fn chunks(&self, step: usize) -> u64 {
        1 + self.draw(5, ("chunks", step))
    }

    pub(crate) fn build(&self) -> Arc<Graph> {
        let mut builder = GraphBuilder::new();
        builder.partition("p");
        let (mut steps, mut loops) = (0, 0);
        let section = self.section(&self.tree, &mut steps, &mut loops);
        builder.walk("p", "walk", section);
        for (index, wild) in self.steps.iter().enumerate() {
            builder.node(format!("n{index}"), "component");
            if wild.streamed {
                let (partition, stream, feeder) = (format!("q{index}"), format!("s{index}"), format!("f{index}"));
                builder
                    .node(feeder.clone(), "feeder")
                    .partition(partition.clone())
                    .stream(Stream::new(stream.clone(), partition.clone(), "p", ChunkPolicy::Fixed(1)))
                    .walk(partition, format!("w{index}"), step(feeder, "feed").stream_out("items", stream));
            }
        }
        builder.build().unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn section(&self, tree: &Tree, steps: &mut usize, loops: &mut usize) -> Section {
        match tree {
            Tree::Step => {
                *steps += 1;
                self.step(*steps - 1).into()
            }
            Tree::InOrder(members) => sequential(members.iter().map(|m| self.section(m, steps, loops))),
            Tree::Beside(members) => parallel(members.iter().map(|m| self.section(m, steps, loops))),
            Tree::Loop { body, .. } => {
                let (index, name) = (*loops, LoopName::from(format!("l{loops}")));
                *loops += 1;
                let wild = &self.loops[index];
                let body = self.section(body, steps, loops);
                let bound = wild.bound.map_or(Bound::Stream, Bound::Fixed);
                let made = if wild.dynamic { dynamic_loop(name, bound, body) } else { repeat(name, bound, body) };
                let gather = wild.gather.iter();
                gather.fold(made, |made, (step, output)| made.gather(name_of(*step), output_of(*output))).into()
            }
        }
    }

    fn step(&self, index: usize) -> Step {
        let wild = &self.steps[index];
        let mut made = step(format!("n{index}"), "op").named(name_of(index));
        if wild.takes_input {
            made = made.input("input");
        }
        if wild.streamed {
            made = made.stream_in("chunk", format!("s{index}"));
        }
        for port in &wild.optional {
            made = made.optional(port.as_str());
        }
        for edge in self.edges.iter().filter(|edge| edge.from == index) {
            let when = if edge.back { When::NextIteration } else { When::Now };
            let carries = if edge.signal { Carries::Signal } else { Carries::Value };
            let (step, port) = (name_of(edge.to), Port::from(edge.port.as_str()));
            made = made.target(output_of(edge.output), Target::Step { step, port, when, carries });
        }
        if let Some(output) = wild.result {
            made = made.result(output_of(output), format!("result {index}"));
        }
        if let Some(output) = wild.client {
            made = made.client(output_of(output), Modality::Tensor);
        }
        for index in wild.loops.iter().filter(|index| self.loops[**index].dynamic && **index % 2 == 0) {
            made = made.stop(format!("stop {index}"), format!("l{index}"));
        }
        made
    }
}

pub(crate) fn name_of(step: usize) -> StepName {
    StepName::from(step.to_string())
}

pub(crate) fn output_of(output: usize) -> Port {
    Port::from(format!("o{output}"))
}
