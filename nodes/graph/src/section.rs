//! What a walk is made of: steps, put in sequence, in parallel and in loops. Plain data, cloned and
//! composed freely; nothing is checked before [`GraphBuilder::build`](crate::GraphBuilder::build).

use crate::names::{ComponentId, KeptName, LoopName, Modality, NodeName, OpName, Port, StepName, StreamName};
use crate::stream::Stream;

/// A walk or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// One firing of one op.
    Step(Step),
    /// Members in order: outputs of earlier ones may feed later ones. No barrier beyond the edges.
    Sequential(Vec<Section>),
    /// Members that run side by side; the join is whoever consumes their outputs.
    Parallel(Vec<Section>),
    /// A body run again and again.
    Loop(LoopSection),
    /// A section whose steps are wired from outside, so that fragments can be composed.
    Wired {
        /// The section.
        body: Box<Section>,
        /// What is wired, in order.
        wires: Vec<Wire>,
    },
}

/// One use of a node's op in a walk, with its wiring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Names the step in its walk.
    pub name: StepName,
    /// The node that computes.
    pub node: NodeName,
    /// The entry point of the node.
    pub op: OpName,
    /// Inputs that come from outside the walk's steps.
    pub sources: Vec<(Port, Source)>,
    /// Where outputs go; one output may go to several places.
    pub targets: Vec<(Port, Target)>,
    /// Inputs without which the step fires all the same when nothing will come.
    pub optional: Vec<Port>,
    /// Signals of the op that end a loop around the step.
    pub stops: Vec<(Port, LoopName)>,
}

/// Where an input of a step comes from, when it doesn't come from another step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A value that the plan gives to the walk.
    Input(Port),
    /// A value kept by an earlier walk.
    Kept(KeptName),
    /// Chunks of a stream from another partition.
    Stream(StreamName),
}

/// Where an output of a step goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An input of a step.
    Step {
        /// The step that is fed.
        step: StepName,
        /// Its input.
        port: Port,
        /// The iteration that is fed.
        when: When,
        /// What the edge carries.
        carries: Carries,
    },
    /// A stream to another partition.
    Stream(StreamName),
    /// The client.
    Client(Modality),
    /// A name under which later walks find the value.
    Keep(KeptName),
    /// A result of the walk, which the plan sees.
    Result(Port),
}

/// The iteration that an edge feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This one.
    Now,
    /// The next one of the innermost loop around both ends.
    NextIteration,
}

/// What an edge carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// The output's value.
    Value,
    /// Nothing but the fact that the output or signal was raised.
    Signal,
}

/// A change to one step of a section, made from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Gives an output one more place to go.
    Target(StepName, Port, Target),
    /// Gives an input a source, in place of the one it has.
    Source(StepName, Port, Source),
    /// Takes an input's source away, so that an edge can feed it.
    Open(StepName, Port),
}

/// A loop. External inputs are offered again to every iteration; loop-backs feed the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopSection {
    /// Names the loop and its stop signal.
    pub name: LoopName,
    /// How many iterations it has at most.
    pub bound: Bound,
    /// What ends it before its bound.
    pub ends: Ends,
    /// Outputs of which all iterations count, not the latest only.
    pub gather: Vec<(StepName, Port)>,
    /// What is run again and again.
    pub body: Box<Section>,
}

/// How many iterations a loop has at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// As many as the graph says.
    Fixed(u32),
    /// As many as the request says under this name, which is refused above `limit`; `limit` when
    /// the request says nothing.
    FromRequest {
        /// The request's name for the bound.
        name: String,
        /// The most that is accepted.
        limit: u32,
    },
    /// As many as it takes to consume the streams that steps of the body take.
    Stream,
}

/// What ends a loop before its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Nothing but the end of a stream that it consumes.
    AtBound,
    /// Its stop signal, too.
    OnStop,
}

/// A part of a walk that a model exports for others to include.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The part.
    pub section: Section,
    /// The nodes that it uses, with their components.
    pub nodes: Vec<(NodeName, ComponentId)>,
    /// The streams that it uses.
    pub streams: Vec<Stream>,
}

/// Returns a step that fires `op` of `node`, named `node.op`.
pub fn step(node: impl Into<NodeName>, op: impl Into<OpName>) -> Step {
    let (node, op) = (node.into(), op.into());
    Step {
        name: StepName::from(format!("{node}.{op}")),
        node,
        op,
        sources: Vec::new(),
        targets: Vec::new(),
        optional: Vec::new(),
        stops: Vec::new(),
    }
}

/// Puts members in order.
pub fn sequential<S: Into<Section>>(members: impl IntoIterator<Item = S>) -> Section {
    Section::Sequential(members.into_iter().map(Into::into).collect())
}

/// Puts members side by side.
pub fn parallel<S: Into<Section>>(members: impl IntoIterator<Item = S>) -> Section {
    Section::Parallel(members.into_iter().map(Into::into).collect())
}

/// Returns a loop that runs up to its bound.
pub fn repeat(name: impl Into<LoopName>, bound: impl Into<Bound>, body: impl Into<Section>) -> LoopSection {
    let (name, bound, body) = (name.into(), bound.into(), Box::new(body.into()));
    LoopSection { name, bound, ends: Ends::AtBound, gather: Vec::new(), body }
}

/// Returns a loop that ends when a step raises its stop signal, and at its bound at the latest.
pub fn dynamic_loop(name: impl Into<LoopName>, max: impl Into<Bound>, body: impl Into<Section>) -> LoopSection {
    LoopSection { ends: Ends::OnStop, ..repeat(name, max, body) }
}

/// Returns a loop that runs until the stream that its body consumes ends, or a stop signal comes.
pub fn loop_over_stream(name: impl Into<LoopName>, body: impl Into<Section>) -> LoopSection {
    dynamic_loop(name, Bound::Stream, body)
}

// --- impl Step ---

impl Step {
    /// Names the step, so that a walk may use one op several times.
    pub fn named(mut self, name: impl Into<StepName>) -> Self {
        self.name = name.into();
        self
    }

    /// Takes the walk's input of the same name.
    pub fn input(self, port: impl Into<Port>) -> Self {
        let port = port.into();
        self.input_from(port.clone(), port)
    }

    /// Takes the walk's input `input` at `port`.
    pub fn input_from(self, port: impl Into<Port>, input: impl Into<Port>) -> Self {
        self.source(port, Source::Input(input.into()))
    }

    /// Takes what an earlier walk kept under `name`.
    pub fn kept(self, port: impl Into<Port>, name: impl Into<KeptName>) -> Self {
        self.source(port, Source::Kept(name.into()))
    }

    /// Takes chunks of a stream.
    pub fn stream_in(self, port: impl Into<Port>, stream: impl Into<StreamName>) -> Self {
        self.source(port, Source::Stream(stream.into()))
    }

    /// Gives an input its source.
    pub fn source(mut self, port: impl Into<Port>, source: Source) -> Self {
        self.sources.push((port.into(), source));
        self
    }

    /// Lets the step fire without this input when nothing will come.
    pub fn optional(mut self, port: impl Into<Port>) -> Self {
        self.optional.push(port.into());
        self
    }

    /// Feeds another step.
    pub fn to(self, output: impl Into<Port>, step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        self.target(output, Target::step(step, port))
    }

    /// Feeds a step in the next iteration of the innermost loop around both.
    pub fn back(self, output: impl Into<Port>, step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        self.target(output, Target::back(step, port))
    }

    /// Feeds another step with the mere fact that the output or signal was raised.
    pub fn signal(self, output: impl Into<Port>, step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        self.target(output, Target::signal(step, port))
    }

    /// Puts items into a stream.
    pub fn stream_out(self, output: impl Into<Port>, stream: impl Into<StreamName>) -> Self {
        self.target(output, Target::Stream(stream.into()))
    }

    /// Sends to the client.
    pub fn client(self, output: impl Into<Port>, modality: Modality) -> Self {
        self.target(output, Target::Client(modality))
    }

    /// Keeps the value for later walks.
    pub fn keep(self, output: impl Into<Port>, name: impl Into<KeptName>) -> Self {
        self.target(output, Target::Keep(name.into()))
    }

    /// Makes the value a result of the walk.
    pub fn result(self, output: impl Into<Port>, name: impl Into<Port>) -> Self {
        self.target(output, Target::Result(name.into()))
    }

    /// Gives an output one more place to go.
    pub fn target(mut self, output: impl Into<Port>, target: Target) -> Self {
        self.targets.push((output.into(), target));
        self
    }

    /// Ends a loop around the step when its op raises `signal`.
    pub fn stop(mut self, signal: impl Into<Port>, loop_name: impl Into<LoopName>) -> Self {
        self.stops.push((signal.into(), loop_name.into()));
        self
    }

    /// Puts another section behind the step.
    pub fn then(self, next: impl Into<Section>) -> Section {
        Section::from(self).then(next)
    }
}

// --- impl Target ---

impl Target {
    /// Returns an edge to an input of this iteration.
    pub fn step(step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        Target::edge(step, port, When::Now, Carries::Value)
    }

    /// Returns an edge to an input of the next iteration.
    pub fn back(step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        Target::edge(step, port, When::NextIteration, Carries::Value)
    }

    /// Returns an edge without a value.
    pub fn signal(step: impl Into<StepName>, port: impl Into<Port>) -> Self {
        Target::edge(step, port, When::Now, Carries::Signal)
    }

    fn edge(step: impl Into<StepName>, port: impl Into<Port>, when: When, carries: Carries) -> Self {
        Target::Step { step: step.into(), port: port.into(), when, carries }
    }
}

// --- impl LoopSection ---

impl LoopSection {
    /// Makes the outputs of all iterations, in order, the loop's result for this output.
    pub fn gather(mut self, step: impl Into<StepName>, output: impl Into<Port>) -> Self {
        self.gather.push((step.into(), output.into()));
        self
    }

    /// Puts another section behind the loop.
    pub fn then(self, next: impl Into<Section>) -> Section {
        Section::from(self).then(next)
    }
}

// --- impl Bound ---

impl Bound {
    /// Returns a bound that the request may set, up to `limit`.
    pub fn from_request(name: impl Into<String>, limit: u32) -> Self {
        Bound::FromRequest { name: name.into(), limit }
    }
}

impl From<u32> for Bound {
    fn from(times: u32) -> Self {
        Bound::Fixed(times)
    }
}

// --- impl Section ---

impl From<Step> for Section {
    fn from(step: Step) -> Self {
        Section::Step(step)
    }
}

impl From<LoopSection> for Section {
    fn from(section: LoopSection) -> Self {
        Section::Loop(section)
    }
}

impl Section {
    /// Puts another section behind this one.
    pub fn then(self, next: impl Into<Section>) -> Section {
        match self {
            Section::Sequential(mut members) => {
                members.push(next.into());
                Section::Sequential(members)
            }
            first => Section::Sequential(vec![first, next.into()]),
        }
    }

    /// Gives an output of a step in this section one more place to go.
    pub fn wire(self, step: impl Into<StepName>, output: impl Into<Port>, target: Target) -> Section {
        self.wired(Wire::Target(step.into(), output.into(), target))
    }

    /// Gives an input of a step in this section a source, in place of the one it has.
    pub fn feed(self, step: impl Into<StepName>, port: impl Into<Port>, source: Source) -> Section {
        self.wired(Wire::Source(step.into(), port.into(), source))
    }

    /// Takes the source of an input away, so that an edge from another step can feed it.
    pub fn open(self, step: impl Into<StepName>, port: impl Into<Port>) -> Section {
        self.wired(Wire::Open(step.into(), port.into()))
    }

    fn wired(self, wire: Wire) -> Section {
        match self {
            Section::Wired { body, mut wires } => {
                wires.push(wire);
                Section::Wired { body, wires }
            }
            body => Section::Wired { body: Box::new(body), wires: vec![wire] },
        }
    }

    /// Returns the section with `prefix` before the names of all its steps and loops, so that a
    /// walk may include one fragment twice.
    pub fn prefixed(mut self, prefix: &str) -> Section {
        self.prefix(prefix);
        self
    }

    fn prefix(&mut self, prefix: &str) {
        match self {
            Section::Step(step) => step.prefix(prefix),
            Section::Sequential(members) | Section::Parallel(members) => {
                members.iter_mut().for_each(|member| member.prefix(prefix));
            }
            Section::Loop(section) => {
                section.name = LoopName::from(format!("{prefix}{}", section.name));
                for (step, _) in &mut section.gather {
                    prefix_step(step, prefix);
                }
                section.body.prefix(prefix);
            }
            Section::Wired { body, wires } => {
                body.prefix(prefix);
                wires.iter_mut().for_each(|wire| wire.prefix(prefix));
            }
        }
    }
}

impl Step {
    fn prefix(&mut self, prefix: &str) {
        prefix_step(&mut self.name, prefix);
        for (_, target) in &mut self.targets {
            target.prefix(prefix);
        }
        for (_, name) in &mut self.stops {
            *name = LoopName::from(format!("{prefix}{name}"));
        }
    }
}

impl Target {
    fn prefix(&mut self, prefix: &str) {
        if let Target::Step { step, .. } = self {
            prefix_step(step, prefix);
        }
    }
}

impl Wire {
    fn prefix(&mut self, prefix: &str) {
        match self {
            Wire::Target(step, _, target) => {
                prefix_step(step, prefix);
                target.prefix(prefix);
            }
            Wire::Source(step, ..) | Wire::Open(step, _) => prefix_step(step, prefix),
        }
    }
}

fn prefix_step(name: &mut StepName, prefix: &str) {
    *name = StepName::from(format!("{prefix}{name}"));
}
