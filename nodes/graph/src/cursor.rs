//! Steps one request through one walk: events in, commands out, no IO. Whoever drives it fires what
//! it says, reports what came of each firing, and gets the next commands.
//!
//! Everything about a firing is settled when it is done: each of its edges either carries something
//! or is known never to carry anything this iteration. A step all of whose inputs are settled fires,
//! or is passed over when one that it needs won't come. So a walk always ends, and it is known when:
//! an iteration is over when every step of the loop's body has fired or was passed over.

mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::graph::Graph;
use crate::layout::{Cell, Origin};
use crate::names::{KeptName, LoopName, Modality, Port, StepIx, StepName, WalkIx, WalkName};
use crate::section::{Bound, Ends};
use state::State;

/// Where one request stands in one walk.
#[derive(Clone, Debug)]
pub struct Cursor<V> {
    graph: Arc<Graph>,
    walk: WalkIx,
    state: State<V>,
}

/// Names one firing; unique within its cursor, and the same when the walk is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FiringId(pub u64);

/// What an input is fed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input<V> {
    /// One value.
    One(V),
    /// The values of all iterations of a loop, in order.
    All(Vec<V>),
    /// The mere fact that an output was given or a signal raised.
    Signal,
}

/// The iteration of each loop around a step, from the outside in, counted from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Iteration(Vec<u32>);

/// A step to fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fire<V> {
    /// The firing, to be named in its [`Done`].
    pub firing: FiringId,
    /// The step.
    pub step: StepIx,
    /// The iteration of each loop around it.
    pub iteration: Iteration,
    /// Its inputs but for streams; optional ones may be absent.
    pub inputs: Vec<(Port, Input<V>)>,
}

/// What came of a firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done<V> {
    /// The firing.
    pub firing: FiringId,
    /// The outputs that it gave, in order; stream items are not among them.
    pub outputs: Vec<(Port, V)>,
    /// The signals that it raised.
    pub signals: Vec<Port>,
    /// Loops to end, by name, besides those that its signals end.
    pub stops: Vec<LoopName>,
    /// Its chunk carried `last`.
    pub stream_ended: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command<V> {
    /// Fire a step. With a stream input, it runs when its next chunk is there.
    Fire(Fire<V>),
    /// Send a value to the client.
    Emit {
        /// The step that gave it.
        step: StepIx,
        /// The output.
        port: Port,
        /// What it is to the client.
        modality: Modality,
        /// The value.
        value: V,
    },
    /// Keep a value for later walks, in place of what had its name before.
    Keep {
        /// The name.
        name: KeptName,
        /// The value.
        value: V,
    },
    /// Forget a kept value.
    Release {
        /// The name.
        name: KeptName,
    },
    /// The walk is over; nothing follows.
    Finished {
        /// The results that were given.
        results: Vec<(Port, Input<V>)>,
        /// A stream that the walk consumes has ended.
        stream_ended: bool,
    },
}

/// Commands in the order in which they are to be carried out.
pub type Commands<V> = Vec<Command<V>>;

/// What can go wrong with a cursor: a plan, a request or an op that breaks its promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The plan left out an input.
    #[error("walk `{walk}` needs input `{port}`")]
    MissingInput {
        /// The walk.
        walk: WalkName,
        /// The input.
        port: Port,
    },
    /// The plan gave an input that the walk doesn't have, or gave it twice.
    #[error("walk `{walk}` takes no input `{port}`, or takes it once")]
    UnknownInput {
        /// The walk.
        walk: WalkName,
        /// The input.
        port: Port,
    },
    /// No earlier walk kept the value.
    #[error("walk `{walk}` needs kept value `{name}`")]
    MissingKept {
        /// The walk.
        walk: WalkName,
        /// The kept value.
        name: KeptName,
    },
    /// The request asks for more or fewer iterations than are allowed.
    #[error("`{name}` is {asked}, but must be from 1 to {limit}")]
    BoundOutOfRange {
        /// The request's name for the bound.
        name: String,
        /// What the request says.
        asked: u32,
        /// The most that is accepted.
        limit: u32,
    },
    /// The firing is not in flight.
    #[error("firing {0} is not in flight")]
    UnknownFiring(FiringId),
    /// A firing gave an output twice that does not only lead to the client.
    #[error("step `{step}` gave output `{port}` twice in one firing")]
    DuplicateOutput {
        /// The step.
        step: StepName,
        /// The output.
        port: Port,
    },
    /// Both slots of an input are taken.
    #[error("input `{port}` of step `{step}` was fed a third time")]
    ThirdDelivery {
        /// The step that is fed.
        step: StepName,
        /// The input.
        port: Port,
    },
    /// A firing stops a loop that is neither around its step nor beside it, or takes no stop signal.
    #[error("step `{step}` can't stop loop `{name}`")]
    NotStoppable {
        /// The step.
        step: StepName,
        /// The loop.
        name: LoopName,
    },
}

/// Where a cursor stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Position {
    /// The walk.
    pub walk: WalkName,
    /// What is in flight, with the iteration of each loop around it.
    pub steps: Vec<(StepName, Iteration)>,
    /// The loops that have begun and not ended, with their iteration, counted from zero, and bound.
    pub loops: Vec<(LoopName, u32, Option<u32>)>,
}

// --- impl Cursor ---

impl<V: Clone> Cursor<V> {
    /// Starts a walk. `kept` finds what earlier walks kept, `limits` what the request says of loops.
    pub fn start(
        graph: &Arc<Graph>,
        walk: WalkIx,
        inputs: Vec<(Port, V)>,
        kept: &dyn Fn(&KeptName) -> Option<V>,
        limits: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<(Self, Commands<V>), CursorError> {
        let bounds = bounds(graph, walk, limits)?;
        let offers = offers(graph, walk, inputs, kept)?;
        let graph = Arc::clone(graph);
        let mut state = State::new(&graph.walk(walk).layout, bounds, offers);
        let mut commands = Vec::new();
        state.settle(graph.walk(walk), &mut commands).map_err(|slot| third(&graph, walk, slot))?;
        Ok((Cursor { graph, walk, state }, commands))
    }

    /// Takes what came of a firing, and says what to do next. After an error the walk can't go on.
    pub fn done(&mut self, done: Done<V>) -> Result<Commands<V>, CursorError> {
        let Cursor { graph, walk, state } = self;
        let plan = graph.walk(*walk);
        let name = |step: usize| graph.steps[plan.first_step + step].name.clone();
        let step = state.land(done.firing).ok_or(CursorError::UnknownFiring(done.firing))?;
        let layout = &plan.layout;
        for signal in &done.signals {
            let stops = layout.steps[step].stops.iter().filter(|(port, _)| port == signal);
            stops.for_each(|(_, scope)| state.stop(*scope));
        }
        for stop in done.stops {
            let is_named = |scope: usize| {
                let repeats = layout.scopes[scope].repeats.as_ref()?;
                let stoppable = repeats.ends == Ends::OnStop && graph.loop_at(repeats.ix).name == stop;
                stoppable.then_some(scope)
            };
            match layout.stoppable(step).find_map(is_named) {
                Some(scope) => state.stop(scope),
                None => return Err(CursorError::NotStoppable { step: name(step), name: stop }),
            }
        }
        if done.stream_ended {
            state.end_stream(layout, step);
        }
        let mut commands = Vec::with_capacity(2);
        if let Err(port) = state.check_outputs(layout, step, &done.outputs) {
            return Err(CursorError::DuplicateOutput { step: name(step), port });
        }
        state
            .give(plan, step, done.outputs, &done.signals, &mut commands)
            .and_then(|()| state.settle(plan, &mut commands))
            .map_err(|slot| third(graph, *walk, slot))?;
        Ok(commands)
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Returns the walk.
    pub fn walk(&self) -> WalkIx {
        self.walk
    }

    /// Returns the firings that are not done, in the order of their firing.
    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = (FiringId, StepIx)> {
        let first = self.graph.walk(self.walk).first_step;
        self.state.in_flight().iter().map(move |(firing, step)| (*firing, StepIx::at(first + step)))
    }

    /// Reports whether the walk is over.
    pub fn finished(&self) -> bool {
        self.state.finished()
    }

    /// Returns where the cursor stands, for people.
    pub fn position(&self) -> Position {
        let walk = self.graph.walk(self.walk);
        let steps = self.state.in_flight().iter().map(|(_, step)| {
            let name = self.graph.steps[walk.first_step + step].name.clone();
            (name, self.state.iteration(&walk.layout, *step))
        });
        let loops = walk.layout.scopes.iter().enumerate().filter_map(|(scope, entry)| {
            let ix = entry.repeats.as_ref()?.ix;
            let (iteration, bound) = self.state.running(scope)?;
            Some((self.graph.loop_at(ix).name.clone(), iteration, bound))
        });
        Position { walk: walk.name.clone(), steps: steps.collect(), loops: loops.collect() }
    }
}

fn third(graph: &Graph, walk: WalkIx, slot: usize) -> CursorError {
    let walk = graph.walk(walk);
    let slot = &walk.layout.slots[slot];
    let step = graph.steps[walk.first_step + slot.step].name.clone();
    CursorError::ThirdDelivery { step, port: slot.port.clone() }
}

fn bounds(graph: &Graph, walk: WalkIx, limits: &dyn Fn(&str) -> Option<u32>) -> Result<Vec<Option<u32>>, CursorError> {
    let scopes = &graph.walk(walk).layout.scopes;
    let bound = |bound: &Bound| match bound {
        Bound::Fixed(times) => Ok(Some(*times)),
        Bound::Stream => Ok(None),
        Bound::FromRequest { name, limit } => match limits(name) {
            None => Ok(Some(*limit)),
            Some(asked) if (1..=*limit).contains(&asked) => Ok(Some(asked)),
            Some(asked) => Err(CursorError::BoundOutOfRange { name: name.clone(), asked, limit: *limit }),
        },
    };
    let repeats = scopes.iter().map(|scope| scope.repeats.as_ref());
    repeats.map(|repeats| repeats.map_or(Ok(Some(1)), |repeats| bound(&repeats.bound))).collect()
}

/// Finds what the plan and earlier walks offer to each cell; the rest is fed by edges.
fn offers<V: Clone>(
    graph: &Graph,
    walk: WalkIx,
    inputs: Vec<(Port, V)>,
    kept: &dyn Fn(&KeptName) -> Option<V>,
) -> Result<Vec<Option<V>>, CursorError> {
    let walk = graph.walk(walk);
    for (index, (port, _)) in inputs.iter().enumerate() {
        if !walk.inputs.contains(port) || inputs[..index].iter().any(|(first, _)| first == port) {
            return Err(CursorError::UnknownInput { walk: walk.name.clone(), port: port.clone() });
        }
    }
    let offer = |cell: &Cell| {
        let optional = walk.layout.slots[cell.slot].optional;
        match &cell.origin {
            Origin::Edge | Origin::Back => Ok(None),
            Origin::Input(name) => match inputs.iter().find(|(port, _)| port == name) {
                None if !optional => Err(CursorError::MissingInput { walk: walk.name.clone(), port: name.clone() }),
                given => Ok(given.map(|(_, value)| value.clone())),
            },
            Origin::Kept(name) => match kept(name) {
                None if !optional => Err(CursorError::MissingKept { walk: walk.name.clone(), name: name.clone() }),
                found => Ok(found),
            },
        }
    };
    walk.layout.cells.iter().map(offer).collect()
}

// --- impl Done ---

impl<V> Done<V> {
    /// Reports a firing that gave nothing yet.
    pub fn new(firing: FiringId) -> Self {
        let (outputs, signals, stops) = (Vec::new(), Vec::new(), Vec::new());
        Done { firing, outputs, signals, stops, stream_ended: false }
    }

    /// Adds an output.
    pub fn output(mut self, port: impl Into<Port>, value: V) -> Self {
        self.outputs.push((port.into(), value));
        self
    }

    /// Adds a signal.
    pub fn signal(mut self, port: impl Into<Port>) -> Self {
        self.signals.push(port.into());
        self
    }

    /// Adds a loop to stop.
    pub fn stop(mut self, name: impl Into<LoopName>) -> Self {
        self.stops.push(name.into());
        self
    }

    /// Says that the firing's chunk carried `last`.
    pub fn stream_ended(mut self) -> Self {
        self.stream_ended = true;
        self
    }
}

// --- impl Input ---

impl<V> Input<V> {
    /// Returns the value, when there is exactly one.
    pub fn one(&self) -> Option<&V> {
        match self {
            Input::One(value) => Some(value),
            Input::All(_) | Input::Signal => None,
        }
    }

    /// Returns the values, none for a signal.
    pub fn values(&self) -> &[V] {
        match self {
            Input::One(value) => std::slice::from_ref(value),
            Input::All(values) => values,
            Input::Signal => &[],
        }
    }
}

// --- impl Iteration ---

impl Iteration {
    pub(crate) fn new(path: Vec<u32>) -> Self {
        Iteration(path)
    }

    /// Returns the iteration of each loop around the step, from the outside in.
    pub fn path(&self) -> &[u32] {
        &self.0
    }

    /// Returns the iteration of the innermost loop, zero outside of loops.
    pub fn innermost(&self) -> u32 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, iteration) in self.0.iter().enumerate() {
            write!(f, "{}{iteration}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

impl fmt::Display for FiringId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// --- impl Position ---

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.walk)?;
        for (step, iteration) in &self.steps {
            write!(f, " {step}")?;
            if !iteration.path().is_empty() {
                write!(f, "[{iteration}]")?;
            }
        }
        Ok(())
    }
}
