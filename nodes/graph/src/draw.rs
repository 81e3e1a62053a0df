//! Draws a graph: walks and loops as frames, steps as boxes, edges as lines; loop-backs are dotted,
//! streams are thick.

mod dot;
mod mermaid;
#[cfg(test)]
mod tests;

use indexmap::IndexMap;

use crate::chunk::{AtEnd, ChunkPolicy};
use crate::graph::{Graph, GraphWalk};
use crate::layout::Origin;
use crate::names::{Port, StreamIx, WalkIx};
use crate::section::{Bound, Carries, Ends, Target, When};
use crate::stream::Stream;

pub use dot::dot;
pub use mermaid::mermaid;

/// A drawing in no particular language.
#[derive(Debug, Default)]
struct Sketch {
    frames: Vec<Frame>,
    /// Boxes that belong to no walk.
    shared: Vec<Mark>,
    lines: Vec<Line>,
}

/// A walk or a loop.
#[derive(Debug)]
struct Frame {
    id: String,
    label: String,
    marks: Vec<Mark>,
    frames: Vec<Frame>,
}

/// Something that lines join.
#[derive(Debug)]
struct Mark {
    id: String,
    label: String,
    shape: Shape,
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Step,
    Value,
    Kept,
    Stream,
    Client,
}

/// An edge.
#[derive(Debug)]
struct Line {
    from: String,
    to: String,
    label: String,
    stroke: Stroke,
}

/// How an edge is drawn.
#[derive(Clone, Copy, Debug)]
enum Stroke {
    Plain,
    Back,
    Stream,
}

// --- impl Sketch ---

impl Sketch {
    fn of(graph: &Graph) -> Self {
        let mut sketch = Sketch::default();
        for (ix, stream) in graph.streams() {
            sketch.shared.push(Mark::new(stream_id(ix), stream_label(stream), Shape::Stream));
        }
        for (ix, walk) in graph.walks() {
            let frame = sketch.walk(graph, ix, walk);
            sketch.frames.push(frame);
        }
        sketch
    }

    fn walk(&mut self, graph: &Graph, ix: WalkIx, walk: &GraphWalk) -> Frame {
        let mut frame = Frame {
            id: format!("walk{}", ix.index()),
            label: format!("walk {} (partition {})", walk.name, walk.partition),
            marks: Vec::new(),
            frames: Vec::new(),
        };
        let value_id = |role: &str, names: &[Port], name: &Port| {
            let index = names.iter().position(|known| known == name);
            format!("{role}{}_{}", ix.index(), index.expect("invariant: a walk lists its inputs and results"))
        };
        let input_id = |name: &Port| value_id("input", &walk.inputs, name);
        let result_id = |name: &Port| value_id("result", &walk.results, name);
        for name in &walk.inputs {
            frame.marks.push(Mark::new(input_id(name), format!("input {name}"), Shape::Value));
        }
        self.scope(graph, walk, 0, &mut frame);
        for name in &walk.results {
            frame.marks.push(Mark::new(result_id(name), format!("result {name}"), Shape::Value));
        }
        for cell in &walk.layout.cells {
            let slot = &walk.layout.slots[cell.slot];
            let from = match &cell.origin {
                Origin::Edge | Origin::Back => continue,
                Origin::Input(name) => input_id(name),
                Origin::Kept(name) => self.shared_mark("kept", name.as_str(), Shape::Kept),
            };
            self.line(from, step_id(walk.first_step + slot.step), slot.port.to_string(), Stroke::Plain);
        }
        for (index, step) in graph.walk_steps(ix).map(|step| (step.index(), graph.step(step))) {
            for (port, stream) in &step.stream_inputs {
                self.line(stream_id(*stream), step_id(index), port.to_string(), Stroke::Stream);
            }
            for (port, stream) in &step.stream_outputs {
                self.line(step_id(index), stream_id(*stream), port.to_string(), Stroke::Stream);
            }
            for (port, target) in step.targets() {
                let (to, label, stroke) = match target {
                    Target::Stream(_) => continue,
                    Target::Client(modality) => {
                        let client = self.shared_mark("client", "", Shape::Client);
                        (client, format!("{port} ({modality})"), Stroke::Plain)
                    }
                    Target::Keep(name) => {
                        (self.shared_mark("kept", name.as_str(), Shape::Kept), port.to_string(), Stroke::Plain)
                    }
                    Target::Result(name) => (result_id(name), port.to_string(), Stroke::Plain),
                    Target::Step { step, port: to, when, carries } => {
                        let fed = graph.find_step(ix, step.as_str()).expect("invariant: edges end at steps");
                        let stroke = if *when == When::Now { Stroke::Plain } else { Stroke::Back };
                        (step_id(fed.index()), edge_label(port, to, *carries), stroke)
                    }
                };
                self.line(step_id(index), to, label, stroke);
            }
        }
        frame
    }

    /// Fills a walk's or loop's frame with its steps and loops.
    fn scope(&mut self, graph: &Graph, walk: &GraphWalk, scope: usize, frame: &mut Frame) {
        let entry = &walk.layout.scopes[scope];
        for index in entry.steps.clone().filter(|step| walk.layout.steps[*step].scope == scope) {
            let step = &graph.steps[walk.first_step + index];
            let own = format!("{}.{}", step.node, step.op);
            let label = if step.name == *own { own } else { format!("{}: {own}", step.name) };
            frame.marks.push(Mark::new(step_id(walk.first_step + index), label, Shape::Step));
        }
        for inner in entry.inner.clone().filter(|inner| walk.layout.scopes[*inner].parent == scope) {
            let Some(repeats) = &walk.layout.scopes[inner].repeats else { continue };
            let looped = graph.loop_at(repeats.ix);
            let mut inner_frame = Frame {
                id: format!("loop{}", repeats.ix.index()),
                label: format!("loop {} ({})", looped.name, bound_label(&looped.bound, looped.ends)),
                marks: Vec::new(),
                frames: Vec::new(),
            };
            self.scope(graph, walk, inner, &mut inner_frame);
            frame.frames.push(inner_frame);
        }
    }

    /// Returns the mark of something that walks share, drawn once.
    fn shared_mark(&mut self, role: &str, name: &str, shape: Shape) -> String {
        let label = format!("{role} {name}");
        let label = label.trim_end();
        if let Some(mark) = self.shared.iter().find(|mark| mark.label == label) {
            return mark.id.clone();
        }
        let id = format!("{role}{}", self.shared.len());
        self.shared.push(Mark::new(id.clone(), label.to_owned(), shape));
        id
    }

    fn line(&mut self, from: String, to: String, label: String, stroke: Stroke) {
        self.lines.push(Line { from, to, label, stroke });
    }

    /// Returns the lines with the labels of those that join the same ends put together.
    fn joined_lines(&self) -> Vec<Line> {
        let mut joined: IndexMap<(&str, &str, u8), Line> = IndexMap::new();
        for Line { from, to, label, stroke } in &self.lines {
            let entry = joined.entry((from, to, *stroke as u8));
            entry.and_modify(|line| line.label += &format!(", {label}")).or_insert_with(|| Line {
                from: from.clone(),
                to: to.clone(),
                label: label.clone(),
                stroke: *stroke,
            });
        }
        joined.into_values().collect()
    }
}

// --- impl Mark ---

impl Mark {
    fn new(id: String, label: String, shape: Shape) -> Self {
        Self { id, label, shape }
    }
}

fn step_id(index: usize) -> String {
    format!("step{index}")
}

fn stream_id(ix: StreamIx) -> String {
    format!("stream{}", ix.index())
}

fn edge_label(from: &Port, to: &Port, carries: Carries) -> String {
    let mark = if carries == Carries::Signal { "!" } else { "" };
    if from == to { format!("{from}{mark}") } else { format!("{from}{mark} to {to}") }
}

fn bound_label(bound: &Bound, ends: Ends) -> String {
    let bound = match bound {
        Bound::Fixed(times) => format!("{times} times"),
        Bound::FromRequest { name, limit } => format!("{name} times, {limit} at most"),
        Bound::Stream => "until its stream ends".to_owned(),
    };
    match ends {
        Ends::AtBound => bound,
        Ends::OnStop => format!("{bound}, or until stopped"),
    }
}

fn stream_label(stream: &Stream) -> String {
    let policy = match stream.policy {
        ChunkPolicy::Fixed(items) => format!("{items} at a time"),
        ChunkPolicy::SlidingWindow { window, stride } => format!("windows of {window}, {stride} apart"),
        ChunkPolicy::LeftContext { chunk, left } => format!("{chunk} at a time behind {left} seen"),
    };
    let end = if stream.at_end == AtEnd::KeepRunning { ", consumer keeps running" } else { "" };
    format!("stream {}: {policy}, credit {}{end}", stream.name, stream.credit)
}
