//! What a walk must do, found the slow way: one step after the other, in the order of the
//! declaration, with nothing counted and nothing queued.

use std::collections::{BTreeMap, BTreeSet};

use mstar_graph::Input;

use crate::wild::{Tree, Wild, WildEdge};

/// A firing: its step and the iteration of each loop around it.
pub(crate) type Place = (usize, Vec<u32>);

/// Everything that can be seen of a walk.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Inputs of every firing, by port.
    pub(crate) fired: BTreeMap<Place, BTreeMap<String, Input<u64>>>,
    /// What went to the client, of every firing.
    pub(crate) emitted: BTreeMap<Place, u64>,
    /// Results of the walk.
    pub(crate) results: BTreeMap<String, Input<u64>>,
}

/// A value on its way from an output to one end.
#[derive(Clone, Default)]
struct Way {
    now: Option<Input<u64>>,
    next: Option<Input<u64>>,
    /// Waiting for the end of each loop around the output, from the outside in.
    exits: Vec<Option<Input<u64>>>,
}

/// A walk under way.
struct Oracle<'a> {
    wild: &'a Wild,
    seen: Seen,
    edges: Vec<Way>,
    results: Vec<Way>,
    iteration: Vec<u32>,
    around: Vec<usize>,
    stopping: BTreeSet<usize>,
    chunks: Vec<u64>,
    /// Consumers that fired, and any steps that did, since this was last cleared.
    consumed: u64,
    fired: u64,
    next_step: usize,
    next_loop: usize,
}

/// Runs a walk to its end.
pub(crate) fn run(wild: &Wild) -> Seen {
    let way = |step: usize| Way { exits: vec![None; wild.steps[step].loops.len()], ..Way::default() };
    let mut oracle = Oracle {
        wild,
        seen: Seen::default(),
        edges: wild.edges.iter().map(|edge| way(edge.from)).collect(),
        results: (0..wild.steps.len()).map(way).collect(),
        iteration: Vec::new(),
        around: Vec::new(),
        stopping: BTreeSet::new(),
        chunks: vec![0; wild.steps.len()],
        consumed: 0,
        fired: 0,
        next_step: 0,
        next_loop: 0,
    };
    oracle.section(&wild.tree);
    for (step, way) in oracle.results.into_iter().enumerate() {
        if let Some(value) = way.now {
            oracle.seen.results.insert(format!("result {step}"), value);
        }
    }
    oracle.seen
}

impl Oracle<'_> {
    fn section(&mut self, tree: &Tree) {
        match tree {
            Tree::Step => {
                self.next_step += 1;
                self.step(self.next_step - 1);
            }
            Tree::InOrder(members) | Tree::Beside(members) => members.iter().for_each(|m| self.section(m)),
            Tree::Loop { body, .. } => self.repeat(body),
        }
    }

    fn repeat(&mut self, body: &Tree) {
        let (index, first_step) = (self.next_loop, self.next_step);
        let level = self.around.len();
        self.around.push(index);
        self.iteration.push(0);
        self.stopping.remove(&index);
        let before_all = self.fired;
        let inside: Vec<usize> = (0..self.wild.edges.len())
            .filter(|e| self.wild.steps[self.wild.edges[*e].to].loops.contains(&index))
            .collect();
        loop {
            for &e in &inside {
                let edge = &self.wild.edges[e];
                let at_start = self.iteration[level] == 0;
                if edge.back && edge.level == level + 1 && !at_start {
                    self.edges[e].now = self.edges[e].next.take();
                } else if edge.level > level {
                    self.edges[e].now = None;
                    self.edges[e].next = None;
                }
            }
            (self.next_step, self.next_loop) = (first_step, index + 1);
            let (fired, consumed) = (self.fired, self.consumed);
            self.section(body);
            let wild = &self.wild.loops[index];
            let idle = if wild.bound.is_some() { self.fired == fired } else { self.consumed == consumed };
            let at_bound = wild.bound.is_some_and(|bound| self.iteration[level] + 1 >= bound);
            if idle || at_bound || self.stopping.contains(&index) {
                break;
            }
            self.iteration[level] += 1;
        }
        let (begun, wild) = (self.fired > before_all, self.wild);
        self.iteration.pop();
        self.around.pop();
        for e in 0..self.wild.edges.len() {
            let edge = &wild.edges[e];
            if self.wild.steps[edge.from].loops.contains(&index) && edge.level <= level {
                let gathers = |level: usize| wild.gathers(edge.from, edge.output, level);
                leave(&mut self.edges[e], level, edge.level, begun, &gathers, edge.back);
            }
        }
        for step in 0..self.wild.steps.len() {
            let Some(output) = self.wild.steps[step].result else { continue };
            if self.wild.steps[step].loops.contains(&index) {
                let gathers = |level: usize| wild.gathers(step, output, level);
                leave(&mut self.results[step], level, 0, begun, &gathers, false);
            }
        }
    }

    /// Finds what feeds an input: the innermost loop-back that has had its turn, or else what is
    /// there from the first iteration on.
    fn feeds(&self, step: usize, port: &str) -> Option<Input<u64>> {
        let feeds = |edge: &WildEdge| edge.to == step && edge.port == port;
        let mut backs: Vec<usize> = (0..self.wild.edges.len())
            .filter(|e| feeds(&self.wild.edges[*e]) && self.wild.edges[*e].back)
            .filter(|e| self.iteration[self.wild.edges[*e].level - 1] > 0)
            .collect();
        backs.sort_by_key(|e| self.wild.edges[*e].level);
        let forward = || (0..self.wild.edges.len()).find(|e| feeds(&self.wild.edges[*e]) && !self.wild.edges[*e].back);
        match backs.pop().or_else(forward) {
            Some(e) => self.edges[e].now.clone(),
            None => (port == "input").then_some(Input::One(7)),
        }
    }

    fn step(&mut self, step: usize) {
        let all = self.wild;
        let wild = &all.steps[step];
        let mut ports: BTreeSet<&str> =
            self.wild.edges.iter().filter(|edge| edge.to == step).map(|edge| edge.port.as_str()).collect();
        if wild.takes_input {
            ports.insert("input");
        }
        let mut inputs = BTreeMap::new();
        for port in ports {
            match self.feeds(step, port) {
                Some(value) => drop(inputs.insert(port.to_owned(), value)),
                None if wild.optional.iter().any(|optional| optional == port) => {}
                None => return,
            }
        }
        self.fired += 1;
        let place = (step, self.iteration.clone());
        let deed = self.wild.deed(step, &self.iteration);
        if wild.streamed {
            self.consumed += 1;
            self.chunks[step] += 1;
            if self.chunks[step] == self.wild.chunks(step) {
                self.stopping.extend(&self.around);
            }
        }
        self.stopping.extend(&deed.stops);
        for (output, value) in &deed.outputs {
            if wild.client == Some(*output) {
                self.seen.emitted.insert(place.clone(), *value);
            }
            if wild.result == Some(*output) {
                let gathers = |level: usize| all.gathers(step, *output, level);
                give(&mut self.results[step], 0, &gathers, Input::One(*value), false);
            }
        }
        for e in 0..self.wild.edges.len() {
            let edge = &all.edges[e];
            if edge.from != step {
                continue;
            }
            let given = deed.outputs.iter().find(|(output, _)| *output == edge.output).map(|(_, value)| *value);
            let value = match given {
                Some(_) if edge.signal => Input::Signal,
                Some(value) => Input::One(value),
                None if edge.signal && deed.signals.contains(&edge.output) => Input::Signal,
                None => continue,
            };
            let gathers = |level: usize| all.gathers(step, edge.output, level);
            give(&mut self.edges[e], edge.level, &gathers, value, edge.back);
        }
        self.seen.fired.insert(place, inputs);
    }
}

/// Sends a value from an output towards an end at `level`.
fn give(way: &mut Way, level: usize, gathers: &dyn Fn(usize) -> bool, value: Input<u64>, back: bool) {
    if way.exits.len() > level {
        let innermost = way.exits.len() - 1;
        wait(&mut way.exits[innermost], gathers(innermost), value);
    } else if back {
        way.next = Some(value);
    } else {
        way.now = Some(value);
    }
}

/// Ends a loop: what waited for that goes on.
fn leave(way: &mut Way, ended: usize, level: usize, begun: bool, gathers: &dyn Fn(usize) -> bool, back: bool) {
    let nothing = || (begun && gathers(ended)).then(|| Input::All(Vec::new()));
    let Some(value) = way.exits[ended].take().or_else(nothing) else { return };
    if ended > level {
        wait(&mut way.exits[ended - 1], gathers(ended - 1), value);
    } else if back {
        way.next = Some(value);
    } else {
        way.now = Some(value);
    }
}

fn wait(exit: &mut Option<Input<u64>>, gathers: bool, value: Input<u64>) {
    let before = exit.take().filter(|_| gathers && value != Input::Signal);
    *exit = Some(match value {
        Input::Signal => Input::Signal,
        value if !gathers => value,
        value => {
            let before = before.map_or(Vec::new(), |before| before.values().to_vec());
            Input::All(before.into_iter().chain(value.values().iter().copied()).collect())
        }
    });
}
