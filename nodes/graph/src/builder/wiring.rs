//! Joins a flattened walk's steps with edges, and lays the walk out for the cursor.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::flatten::{FlatStep, FlatWalk, Standing};
use crate::layout::{Cell, Edge, Exit, Flow, Layout, Origin, Output, Repeats, Scope, Slot, StepLayout};
use crate::names::{LoopIx, LoopName, Port, StepName};
use crate::problems::{ProblemKind, Problems};
use crate::section::{Carries, Ends, Source, Target, When};

/// Lays a walk out; what can't be laid out is reported and left out.
pub(super) fn lay_out(flat: &FlatWalk, path: &str, first_loop: usize, problems: &mut Problems) -> Layout {
    let names = flat.steps.iter().enumerate().map(|(index, step)| (&step.step.name, index)).rev().collect();
    let mut wiring = Wiring { flat, names, feeds: Vec::new(), layout: Layout::default() };
    wiring.feeds = flat.steps.iter().map(|step| sources(step, problems)).collect();
    for step in 0..flat.steps.len() {
        wiring.feed_targets(step, problems);
    }
    wiring.check_reachable(problems);
    wiring.scopes(first_loop);
    let cells = wiring.slots(problems);
    wiring.edges(&cells, path, problems);
    wiring.check_gathers(problems);
    wiring.layout
}

/// A walk being wired.
struct Wiring<'a> {
    flat: &'a FlatWalk,
    names: HashMap<&'a StepName, usize>,
    /// What feeds each step's inputs.
    feeds: Vec<IndexMap<Port, Vec<Feed>>>,
    layout: Layout,
}

/// One thing that feeds an input.
struct Feed {
    level: u32,
    origin: Origin,
    from: Option<usize>,
}

/// The cell that an edge fills: step, input and level.
type Cells = HashMap<(usize, Port, u32), usize>;

impl Feed {
    fn is_back(&self) -> bool {
        matches!(self.origin, Origin::Back)
    }
}

fn sources(flat: &FlatStep, problems: &mut Problems) -> IndexMap<Port, Vec<Feed>> {
    let mut feeds: IndexMap<Port, Vec<Feed>> = IndexMap::new();
    let sources = &flat.step.sources;
    for (index, (port, source)) in sources.iter().enumerate() {
        if sources[..index].iter().any(|(first, _)| first == port) {
            problems.add(ProblemKind::FedTwice, &flat.path, format!("input `{port}` has two sources"));
            continue;
        }
        let origin = match source {
            Source::Input(name) => Origin::Input(name.clone()),
            Source::Kept(name) => Origin::Kept(name.clone()),
            Source::Stream(_) => continue,
        };
        feeds.insert(port.clone(), vec![Feed { level: 0, origin, from: None }]);
    }
    feeds
}

impl<'a> Wiring<'a> {
    fn feed_targets(&mut self, from: usize, problems: &mut Problems) {
        let flat = self.flat;
        for (output, target) in &flat.steps[from].step.targets {
            let Target::Step { step, port, when, .. } = target else { continue };
            let path = format!("{} / output `{output}`", flat.steps[from].path);
            let Some(&to) = self.names.get(step) else {
                problems.add(ProblemKind::Unknown, &path, format!("step `{step}` is not in the walk"));
                continue;
            };
            let streamed = |(p, source): &(Port, Source)| p == port && matches!(source, Source::Stream(_));
            if flat.steps[to].step.sources.iter().any(streamed) {
                let text = format!("input `{port}` of step `{step}` takes a stream already");
                problems.add(ProblemKind::FedTwice, &path, text);
                continue;
            }
            let scope = flat.common_scope(flat.steps[from].scope, flat.steps[to].scope);
            let origin = match when {
                When::NextIteration if scope == 0 => {
                    let text = format!("a loop-back to step `{step}`, but no loop is around both");
                    problems.add(ProblemKind::LoopBack, &path, text);
                    continue;
                }
                When::NextIteration => Origin::Back,
                When::Now => {
                    check_order(flat, from, to, &path, problems);
                    Origin::Edge
                }
            };
            let level = flat.scopes[scope].depth;
            let feeds = self.feeds[to].entry(port.clone()).or_default();
            if let Some(text) = clash(feeds, level, &origin) {
                let path = format!("{} / input `{port}`", flat.steps[to].path);
                problems.add(ProblemKind::FedTwice, path, text);
                continue;
            }
            feeds.push(Feed { level, origin, from: Some(from) });
        }
    }

    /// Reports inputs that nothing feeds in a first iteration, and the steps that wait for those.
    fn check_reachable(&self, problems: &mut Problems) {
        let mut blocked = vec![false; self.feeds.len()];
        for (index, (flat, feeds)) in self.flat.steps.iter().zip(&self.feeds).enumerate() {
            let required = |port: &Port| !flat.step.optional.contains(port);
            let mut waits_for = None;
            for (port, feeds) in feeds.iter().filter(|(port, _)| required(port)) {
                let Some(first) = feeds.iter().find(|feed| !feed.is_back()) else {
                    let text = format!("input `{port}` is fed by a loop-back only, never in the first iteration");
                    problems.add(ProblemKind::NeverFed, &flat.path, text);
                    blocked[index] = true;
                    continue;
                };
                waits_for = waits_for.or(first.from.filter(|from| blocked[*from]));
            }
            if let Some(from) = waits_for {
                let text = format!("can't fire, because step `{}` can't", self.flat.steps[from].step.name);
                problems.add(ProblemKind::Unreachable, &flat.path, text);
                blocked[index] = true;
            }
        }
    }

    fn scopes(&mut self, first_loop: usize) {
        for (index, scope) in self.flat.scopes.iter().enumerate() {
            self.layout.scopes.push(Scope {
                parent: scope.parent,
                depth: scope.depth,
                members: scope.members,
                steps: scope.steps.clone(),
                slots: 0..0,
                inner: scope.inner.clone(),
                repeats: scope.repeats.as_ref().map(|repeats| Repeats {
                    ix: LoopIx::at(first_loop + index - 1),
                    bound: repeats.bound.clone(),
                    ends: repeats.ends,
                }),
                exits: Vec::new(),
            });
        }
    }

    fn slots(&mut self, problems: &mut Problems) -> Cells {
        let mut by_place = Cells::new();
        let layout = &mut self.layout;
        for (index, (flat, feeds)) in self.flat.steps.iter().zip(&mut self.feeds).enumerate() {
            for port in flat.step.optional.iter().filter(|port| !feeds.contains_key(*port)) {
                let text = format!("optional input `{port}` is fed by nothing at all");
                problems.add(ProblemKind::Unknown, &flat.path, text);
            }
            let first_slot = layout.slots.len();
            for (port, feeds) in std::mem::take(feeds) {
                let first_cell = layout.cells.len();
                let mut feeds = feeds;
                feeds.sort_by_key(|feed| (feed.level, feed.is_back()));
                for feed in feeds {
                    by_place.insert((index, port.clone(), feed.level), layout.cells.len());
                    let slot = layout.slots.len();
                    layout.cells.push(Cell { slot, level: feed.level, origin: feed.origin });
                }
                let optional = flat.step.optional.contains(&port);
                let cells = first_cell..layout.cells.len();
                layout.slots.push(Slot { step: index, port, optional, cells });
            }
            layout.steps.push(StepLayout {
                scope: flat.scope,
                slots: first_slot..layout.slots.len(),
                consumes: false,
                outputs: Vec::new(),
                stops: stops(self.flat, flat, problems),
            });
        }
        for scope in &mut layout.scopes {
            let steps = &layout.steps[scope.steps.clone()];
            let first = steps.first().map_or(0, |step| step.slots.start);
            scope.slots = first..steps.last().map_or(first, |step| step.slots.end);
        }
        by_place
    }

    fn edges(&mut self, cells: &Cells, path: &str, problems: &mut Problems) {
        for from in 0..self.flat.steps.len() {
            for (output, target) in &self.flat.steps[from].step.targets {
                let Some((flow, leaves)) = self.flow(from, target, cells, path, problems) else { continue };
                let flow = self.through_exits(from, output, leaves, flow);
                let signal = matches!(target, Target::Step { carries: Carries::Signal, .. });
                let edge = self.layout.edges.len();
                self.layout.edges.push(Edge { signal, flow });
                let outputs = &mut self.layout.steps[from].outputs;
                match outputs.iter_mut().find(|known| known.port == *output) {
                    Some(known) => known.edges.push(edge),
                    None => outputs.push(Output { port: output.clone(), edges: vec![edge] }),
                }
            }
        }
    }

    /// Returns where an edge ends, and the innermost scope that it doesn't leave.
    fn flow(
        &mut self,
        from: usize,
        target: &Target,
        cells: &Cells,
        path: &str,
        problems: &mut Problems,
    ) -> Option<(Flow, usize)> {
        let scope = self.flat.steps[from].scope;
        Some(match target {
            Target::Stream(_) => (Flow::Stream, scope),
            Target::Client(modality) => (Flow::Client(*modality), scope),
            Target::Keep(name) => (Flow::Keep(name.clone()), scope),
            Target::Result(name) => {
                if self.layout.results.contains(name) {
                    let text = format!("result `{name}` is given twice");
                    problems.add(ProblemKind::FedTwice, path, text);
                    return None;
                }
                self.layout.results.push(name.clone());
                (Flow::Result(self.layout.results.len() - 1), 0)
            }
            Target::Step { step, port, when, .. } => {
                let to = *self.names.get(step)?;
                let common = self.flat.common_scope(scope, self.flat.steps[to].scope);
                let level = self.flat.scopes[common].depth;
                let cell = *cells.get(&(to, port.clone(), level))?;
                match when {
                    When::Now => (Flow::Cell(cell), common),
                    When::NextIteration => (Flow::Next(cell), common),
                }
            }
        })
    }

    /// Puts an exit for every loop that an edge leaves in front of its end.
    fn through_exits(&mut self, from: usize, output: &Port, leaves: usize, end: Flow) -> Flow {
        let name = &self.flat.steps[from].step.name;
        let kept_depth = self.flat.scopes[leaves].depth;
        let mut flow = end;
        for scope in self.flat.loops_around(self.flat.steps[from].scope) {
            if self.flat.scopes[scope].depth <= kept_depth {
                continue;
            }
            let repeats = self.flat.scopes[scope].repeats.as_ref();
            let gathers = |(step, port): &(StepName, Port)| step == name && port == output;
            let gather = repeats.is_some_and(|repeats| repeats.gather.iter().any(gathers));
            let exit = self.layout.exits.len();
            self.layout.exits.push(Exit { gather, flow });
            self.layout.scopes[scope].exits.push(exit);
            flow = Flow::Exit(exit);
        }
        flow
    }

    fn check_gathers(&self, problems: &mut Problems) {
        for scope in &self.flat.scopes {
            let Some(repeats) = &scope.repeats else { continue };
            for (name, port) in &repeats.gather {
                let text = match self.names.get(name).filter(|step| scope.steps.contains(step)) {
                    None => format!("gathers from step `{name}`, which isn't in the loop"),
                    Some(step) if !self.leaves(*step, port, scope.depth) => {
                        format!("gathers output `{port}` of step `{name}`, of which no edge leaves the loop")
                    }
                    Some(_) => continue,
                };
                problems.add(ProblemKind::Gather, &scope.path, text);
            }
        }
    }

    fn leaves(&self, from: usize, output: &Port, depth: u32) -> bool {
        let step = &self.flat.steps[from];
        step.step.targets.iter().filter(|(port, _)| port == output).any(|(_, target)| match target {
            Target::Result(_) => true,
            Target::Step { step: to, .. } => self.names.get(to).is_some_and(|to| {
                let common = self.flat.common_scope(step.scope, self.flat.steps[*to].scope);
                self.flat.scopes[common].depth < depth
            }),
            _ => false,
        })
    }
}

/// Says why an input can't be fed by one more edge, if it can't.
fn clash(feeds: &[Feed], level: u32, origin: &Origin) -> Option<&'static str> {
    let back = matches!(origin, Origin::Back);
    for feed in feeds {
        match (feed.is_back(), back) {
            (false, false) => return Some("two outputs feed it in one iteration"),
            (true, true) if feed.level == level => return Some("two loop-backs of one loop feed it"),
            (true, false) if feed.level <= level => return Some(BOTH),
            (false, true) if level <= feed.level => return Some(BOTH),
            _ => {}
        }
    }
    None
}

const BOTH: &str = "a loop-back feeds it, and so does an edge of the same iteration";

fn check_order(flat: &FlatWalk, from: usize, to: usize, path: &str, problems: &mut Problems) {
    let name = &flat.steps[to].step.name;
    let text = match flat.standing(from, to) {
        Standing::Before => return,
        Standing::NotBefore => {
            format!("feeds step `{name}`, which comes before it or is itself: a cycle, unless it's a loop-back")
        }
        Standing::Beside => format!("feeds step `{name}`, which runs in parallel to it"),
    };
    problems.add(ProblemKind::Order, path, text);
}

fn stops(flat: &FlatWalk, step: &FlatStep, problems: &mut Problems) -> Vec<(Port, usize)> {
    let mut found = Vec::new();
    for (signal, name) in &step.step.stops {
        let is_named = |scope: &usize| -> bool {
            let repeats = flat.scopes[*scope].repeats.as_ref();
            repeats.is_some_and(|repeats| repeats.name == *name)
        };
        let around = |scope: &usize| *scope == 0 || flat.loops_around(step.scope).any(|outer| outer == *scope);
        let beside = (1..flat.scopes.len()).filter(|scope| around(&flat.scopes[*scope].parent));
        let text = match flat.loops_around(step.scope).chain(beside).find(is_named) {
            None => not_around(name),
            Some(scope) if ends(flat, scope) != Some(Ends::OnStop) => {
                format!("stops loop `{name}`, which takes no stop signal")
            }
            Some(scope) => {
                found.push((signal.clone(), scope));
                continue;
            }
        };
        problems.add(ProblemKind::Stop, &step.path, text);
    }
    found
}

fn not_around(name: &LoopName) -> String {
    format!("stops loop `{name}`, which isn't around it")
}

fn ends(flat: &FlatWalk, scope: usize) -> Option<Ends> {
    flat.scopes[scope].repeats.as_ref().map(|repeats| repeats.ends)
}
