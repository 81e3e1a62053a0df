//! The cursor's tables, one entry per entry of the walk's layout. An error here is the slot that
//! was fed once too often.

use std::collections::VecDeque;

use super::{Command, Commands, Fire, FiringId, Input, Iteration};
use crate::graph::GraphWalk;
use crate::layout::{Flow, Layout, Origin};
use crate::names::{Port, StepIx};

/// A slot that was fed once too often.
type Overfed = usize;

/// Where a walk stands.
#[derive(Clone, Debug)]
pub(super) struct State<V> {
    scopes: Vec<ScopeState>,
    /// Inputs of each step that are not settled.
    open: Vec<u32>,
    cells: Vec<CellState<V>>,
    exits: Vec<Option<Input<V>>>,
    results: Vec<Option<Input<V>>>,
    ready: VecDeque<usize>,
    in_flight: Vec<(FiringId, usize)>,
    fired: u64,
    stream_ended: bool,
    finished: bool,
}

/// Where a loop, or the walk, stands.
#[derive(Clone, Debug)]
struct ScopeState {
    bound: Option<u32>,
    iteration: u32,
    /// Steps and loops of this iteration that are not over.
    remaining: u32,
    stopping: bool,
    /// A step fired in this iteration; in a loop over a stream, one that consumes it.
    fired: bool,
    /// A step fired in any iteration.
    begun: bool,
}

/// What one place offers to its input, now and in the next iteration.
#[derive(Clone, Debug)]
struct CellState<V> {
    now: Offer<V>,
    next: Option<Input<V>>,
}

/// What one place offers to its input.
#[derive(Clone, Debug)]
enum Offer<V> {
    /// Nothing before the loop's second iteration.
    Off,
    /// Not known yet.
    Open,
    /// Nothing this time.
    Absent,
    /// A value.
    Here(Input<V>),
    /// A value that was taken, and is not needed again.
    Taken,
}

// --- impl Layout ---

impl Layout {
    /// Returns the scopes around a step, from the inside out, the walk's own at the end.
    pub(super) fn around(&self, step: usize) -> impl Iterator<Item = usize> {
        let outwards = |scope: &usize| (*scope > 0).then(|| self.scopes[*scope].parent);
        std::iter::successors(Some(self.steps[step].scope), outwards)
    }

    /// Returns the scopes that a step may stop: those around it, then the loops directly in them, which
    /// may not have begun.
    pub(super) fn stoppable(&self, step: usize) -> impl Iterator<Item = usize> {
        let around = move |scope: usize| self.around(step).any(|outer| outer == scope);
        let beside = (1..self.scopes.len()).filter(move |scope| around(self.scopes[*scope].parent));
        self.around(step).chain(beside)
    }
}

// --- impl State ---

impl<V: Clone> State<V> {
    /// Starts a walk, with what is offered from outside to each cell.
    pub(super) fn new(layout: &Layout, bounds: Vec<Option<u32>>, offers: Vec<Option<V>>) -> Self {
        let scopes = layout.scopes.iter().zip(bounds).map(|(scope, bound)| ScopeState {
            bound,
            iteration: 0,
            remaining: scope.members,
            stopping: false,
            fired: false,
            begun: false,
        });
        let cells = layout.cells.iter().zip(offers).map(|(cell, offer)| CellState {
            now: match (&cell.origin, offer) {
                (Origin::Edge, _) => Offer::Open,
                (Origin::Back, _) => Offer::Off,
                (_, Some(value)) => Offer::Here(Input::One(value)),
                (_, None) => Offer::Absent,
            },
            next: None,
        });
        let mut state = State {
            scopes: scopes.collect(),
            open: vec![0; layout.steps.len()],
            cells: cells.collect(),
            exits: vec![None; layout.exits.len()],
            results: vec![None; layout.results.len()],
            ready: VecDeque::new(),
            in_flight: Vec::new(),
            fired: 0,
            stream_ended: false,
            finished: false,
        };
        (0..layout.steps.len()).for_each(|step| state.begin(layout, step));
        state
    }

    pub(super) fn in_flight(&self) -> &[(FiringId, usize)] {
        &self.in_flight
    }

    pub(super) fn finished(&self) -> bool {
        self.finished
    }

    /// Returns the iteration and the bound of a loop that has begun and is not over.
    pub(super) fn running(&self, scope: usize) -> Option<(u32, Option<u32>)> {
        let state = &self.scopes[scope];
        (state.begun && state.remaining > 0).then_some((state.iteration, state.bound))
    }

    /// Takes a firing off the list, and returns its step.
    pub(super) fn land(&mut self, firing: FiringId) -> Option<usize> {
        let index = self.in_flight.iter().position(|(known, _)| *known == firing)?;
        Some(self.in_flight.remove(index).1)
    }

    pub(super) fn stop(&mut self, scope: usize) {
        self.scopes[scope].stopping = true;
    }

    /// Ends every loop around the consumer of a stream that has ended.
    pub(super) fn end_stream(&mut self, layout: &Layout, step: usize) {
        self.stream_ended = true;
        layout.around(step).for_each(|scope| self.stop(scope));
    }

    /// Returns an output that was given twice, though it leads not only to the client.
    pub(super) fn check_outputs(&self, layout: &Layout, step: usize, given: &[(Port, V)]) -> Result<(), Port> {
        let emitted = |edge: &usize| matches!(layout.edges[*edge].flow, Flow::Client(_) | Flow::Stream);
        for output in &layout.steps[step].outputs {
            let times = given.iter().filter(|(port, _)| *port == output.port).count();
            if times > 1 && !output.edges.iter().all(emitted) {
                return Err(output.port.clone());
            }
        }
        Ok(())
    }

    /// Settles every edge of a step that fired.
    pub(super) fn give(
        &mut self,
        walk: &GraphWalk,
        step: usize,
        given: Vec<(Port, V)>,
        signals: &[Port],
        commands: &mut Commands<V>,
    ) -> Result<(), Overfed> {
        let layout = &walk.layout;
        let outputs = &layout.steps[step].outputs;
        for output in outputs {
            if given.iter().any(|(port, _)| *port == output.port) {
                continue;
            }
            let raised = signals.contains(&output.port);
            for edge in output.edges.iter().map(|edge| &layout.edges[*edge]) {
                let signal = (raised && edge.signal).then_some(Input::Signal);
                self.carry(layout, &edge.flow, signal)?;
            }
        }
        let ix = StepIx::at(walk.first_step + step);
        for (port, value) in given {
            let Some(output) = outputs.iter().find(|output| output.port == port) else { continue };
            let (last, rest) = output.edges.split_last().expect("invariant: an output is listed for its edges");
            for edge in rest {
                self.give_one(layout, *edge, (ix, &port, value.clone()), commands)?;
            }
            self.give_one(layout, *last, (ix, &port, value), commands)?;
        }
        self.member_over(walk, layout.steps[step].scope, commands)
    }

    fn give_one(
        &mut self,
        layout: &Layout,
        edge: usize,
        (step, port, value): (StepIx, &Port, V),
        commands: &mut Commands<V>,
    ) -> Result<(), Overfed> {
        let edge = &layout.edges[edge];
        match &edge.flow {
            Flow::Stream => {}
            Flow::Client(modality) => {
                commands.push(Command::Emit { step, port: port.clone(), modality: *modality, value });
            }
            Flow::Keep(name) => commands.push(Command::Keep { name: name.clone(), value }),
            flow if edge.signal => self.carry(layout, flow, Some(Input::Signal))?,
            flow => self.carry(layout, flow, Some(Input::One(value)))?,
        }
        Ok(())
    }

    /// Fires what is ready, and passes over what can't fire, until something is awaited.
    pub(super) fn settle(&mut self, walk: &GraphWalk, commands: &mut Commands<V>) -> Result<(), Overfed> {
        while let Some(step) = self.ready.pop_front() {
            let layout = &walk.layout;
            let lacks = |slot: usize| {
                let slot = &layout.slots[slot];
                !slot.optional && !matches!(self.cells[self.counts(slot.cells.clone())].now, Offer::Here(_))
            };
            // A loop that was stopped before it began has no iteration.
            let stopped = |scope: usize| self.scopes[scope].stopping && !self.scopes[scope].begun;
            let called_off = layout.around(step).any(stopped);
            if !called_off && !layout.steps[step].slots.clone().any(lacks) {
                self.fire(walk, step, commands);
                continue;
            }
            for output in &layout.steps[step].outputs {
                for edge in &output.edges {
                    self.carry(layout, &layout.edges[*edge].flow, None)?;
                }
            }
            self.member_over(walk, layout.steps[step].scope, commands)?;
        }
        Ok(())
    }

    fn fire(&mut self, walk: &GraphWalk, step: usize, commands: &mut Commands<V>) {
        let layout = &walk.layout;
        let mut scope = layout.steps[step].scope;
        let consumes = layout.steps[step].consumes;
        let depth = layout.scopes[scope].depth;
        let mut inputs = Vec::with_capacity(layout.steps[step].slots.len());
        for slot in &layout.slots[layout.steps[step].slots.clone()] {
            let cell = self.counts(slot.cells.clone());
            let now = &mut self.cells[cell].now;
            let Offer::Here(value) = now else { continue };
            // A value from further out is offered again to the next iteration.
            let value = if layout.cells[cell].level < depth {
                value.clone()
            } else {
                let Offer::Here(value) = std::mem::replace(now, Offer::Taken) else { continue };
                value
            };
            inputs.push((slot.port.clone(), value));
        }
        let firing = FiringId(self.fired);
        self.fired += 1;
        self.in_flight.push((firing, step));
        let iteration = self.iteration(layout, step);
        let step = StepIx::at(walk.first_step + step);
        commands.push(Command::Fire(Fire { firing, step, iteration, inputs }));
        loop {
            let state = &mut self.scopes[scope];
            state.fired |= consumes || state.bound.is_some();
            state.begun = true;
            if scope == 0 {
                return;
            }
            scope = layout.scopes[scope].parent;
        }
    }

    pub(super) fn iteration(&self, layout: &Layout, step: usize) -> Iteration {
        let mut scope = layout.steps[step].scope;
        let mut path = vec![0; layout.scopes[scope].depth as usize];
        for at in path.iter_mut().rev() {
            *at = self.scopes[scope].iteration;
            scope = layout.scopes[scope].parent;
        }
        Iteration::new(path)
    }

    /// Returns the cell that counts for an input: the innermost one that is switched on.
    fn counts(&self, cells: std::ops::Range<usize>) -> usize {
        let first = cells.start;
        cells.rev().find(|cell| !matches!(self.cells[*cell].now, Offer::Off)).unwrap_or(first)
    }

    /// Carries a value, or the certainty that none will come, along an edge.
    fn carry(&mut self, layout: &Layout, flow: &Flow, value: Option<Input<V>>) -> Result<(), Overfed> {
        match (flow, value) {
            (Flow::Exit(exit), Some(value)) => {
                let kept = &mut self.exits[*exit];
                match kept {
                    Some(before) if layout.exits[*exit].gather => before.append(value),
                    _ => *kept = Some(if layout.exits[*exit].gather { value.gathered() } else { value }),
                }
            }
            (Flow::Cell(cell), value) => {
                let slot = layout.cells[*cell].slot;
                let now = &mut self.cells[*cell].now;
                if !matches!(now, Offer::Open) {
                    return Err(slot);
                }
                *now = value.map_or(Offer::Absent, Offer::Here);
                let step = layout.slots[slot].step;
                self.open[step] -= 1;
                if self.open[step] == 0 {
                    self.ready.push_back(step);
                }
            }
            (Flow::Next(cell), Some(value)) => {
                if self.cells[*cell].next.replace(value).is_some() {
                    return Err(layout.cells[*cell].slot);
                }
            }
            (Flow::Result(result), Some(value)) => self.results[*result] = Some(value),
            (Flow::Exit(_) | Flow::Next(_) | Flow::Result(_), None) => {}
            (Flow::Client(_) | Flow::Keep(_) | Flow::Stream, _) => {}
        }
        Ok(())
    }

    /// Counts a step or loop that is over, and ends what ends with it.
    fn member_over(&mut self, walk: &GraphWalk, scope: usize, commands: &mut Commands<V>) -> Result<(), Overfed> {
        let mut scope = scope;
        loop {
            let state = &mut self.scopes[scope];
            state.remaining -= 1;
            if state.remaining > 0 {
                return Ok(());
            }
            if scope == 0 {
                self.finish(walk, commands);
                return Ok(());
            }
            let at_bound = state.bound.is_some_and(|bound| state.iteration + 1 >= bound);
            if !(state.stopping || at_bound || !state.fired) {
                self.advance(&walk.layout, scope);
                return Ok(());
            }
            self.leave(&walk.layout, scope)?;
            scope = walk.layout.scopes[scope].parent;
        }
    }

    /// Begins the next iteration of a loop.
    fn advance(&mut self, layout: &Layout, scope: usize) {
        let entry = &layout.scopes[scope];
        let state = &mut self.scopes[scope];
        state.iteration += 1;
        state.remaining = entry.members;
        state.fired = false;
        for inner in entry.inner.clone() {
            let state = &mut self.scopes[inner];
            state.iteration = 0;
            state.remaining = layout.scopes[inner].members;
            state.stopping = false;
            state.fired = false;
            state.begun = false;
        }
        for cell in layout.cells_of(scope) {
            let (level, state) = (layout.cells[cell].level, &mut self.cells[cell]);
            match layout.cells[cell].origin {
                Origin::Edge if level >= entry.depth => state.now = Offer::Open,
                Origin::Back if level > entry.depth => state.now = Offer::Off,
                Origin::Back if level == entry.depth => {
                    state.now = state.next.take().map_or(Offer::Absent, Offer::Here);
                }
                _ => {}
            }
        }
        entry.steps.clone().for_each(|step| self.begin(layout, step));
    }

    /// Counts the inputs that a step waits for in a new iteration.
    fn begin(&mut self, layout: &Layout, step: usize) {
        let open = |slot: &usize| {
            let cell = self.counts(layout.slots[*slot].cells.clone());
            matches!(self.cells[cell].now, Offer::Open)
        };
        let slots = layout.steps[step].slots.clone();
        let open = slots.filter(open).count();
        self.open[step] = u32::try_from(open).expect("invariant: a step has fewer than 2^32 inputs");
        if open == 0 {
            self.ready.push_back(step);
        }
    }

    /// Hands a loop's results over, and drops what only its iterations needed.
    fn leave(&mut self, layout: &Layout, scope: usize) -> Result<(), Overfed> {
        let entry = &layout.scopes[scope];
        for cell in layout.cells_of(scope) {
            let (level, state) = (layout.cells[cell].level, &mut self.cells[cell]);
            if level + 1 >= entry.depth {
                state.now = Offer::Taken;
            }
            if level >= entry.depth {
                state.next = None;
            }
        }
        let counts = self.scopes[scope].begun || self.scopes[scope].stopping;
        for exit in &entry.exits {
            let nothing = || (counts && layout.exits[*exit].gather).then(|| Input::All(Vec::new()));
            let value = self.exits[*exit].take().or_else(nothing);
            self.carry(layout, &layout.exits[*exit].flow, value)?;
        }
        Ok(())
    }

    fn finish(&mut self, walk: &GraphWalk, commands: &mut Commands<V>) {
        self.finished = true;
        self.cells.clear();
        commands.extend(walk.releases.iter().map(|name| Command::Release { name: name.clone() }));
        let ports = walk.layout.results.iter().cloned();
        let results = ports.zip(self.results.drain(..)).filter_map(|(port, value)| Some((port, value?)));
        let results = results.collect();
        commands.push(Command::Finished { results, stream_ended: self.stream_ended });
    }
}

impl Layout {
    /// Returns the cells of all steps of a scope.
    fn cells_of(&self, scope: usize) -> std::ops::Range<usize> {
        let slots = &self.slots[self.scopes[scope].slots.clone()];
        let first = slots.first().map_or(0, |slot| slot.cells.start);
        first..slots.last().map_or(first, |slot| slot.cells.end)
    }
}

impl<V> Input<V> {
    fn gathered(self) -> Self {
        match self {
            Input::One(value) => Input::All(vec![value]),
            other => other,
        }
    }

    fn append(&mut self, more: Input<V>) {
        match (self, more) {
            (Input::All(all), Input::One(value)) => all.push(value),
            (Input::All(all), Input::All(values)) => all.extend(values),
            (kept, more) => *kept = more.gathered(),
        }
    }
}
