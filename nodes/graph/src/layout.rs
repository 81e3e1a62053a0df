//! A walk as the cursor reads it: flat tables, numbered within the walk, in the order of the
//! declaration. Steps, inputs and inner scopes of a scope are contiguous, whatever its sections.

use std::ops::Range;

use crate::names::{KeptName, LoopIx, Modality, Port};
use crate::section::{Bound, Ends};

/// The tables of one walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    /// The walk's own scope, then one scope per loop.
    pub(crate) scopes: Vec<Scope>,
    pub(crate) steps: Vec<StepLayout>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) exits: Vec<Exit>,
    pub(crate) results: Vec<Port>,
}

/// What is run once per iteration: the walk itself, or a loop's body.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) parent: usize,
    pub(crate) depth: u32,
    /// Steps and loops directly in it.
    pub(crate) members: u32,
    /// Steps in it, at any depth.
    pub(crate) steps: Range<usize>,
    /// Inputs of those steps.
    pub(crate) slots: Range<usize>,
    /// Loops in it, at any depth.
    pub(crate) inner: Range<usize>,
    /// The loop; the walk's own scope has none.
    pub(crate) repeats: Option<Repeats>,
    /// Where values wait for the loop's end.
    pub(crate) exits: Vec<usize>,
}

/// How a scope is repeated.
#[derive(Clone, Debug)]
pub(crate) struct Repeats {
    pub(crate) ix: LoopIx,
    pub(crate) bound: Bound,
    pub(crate) ends: Ends,
}

/// A step's place and wiring.
#[derive(Clone, Debug)]
pub(crate) struct StepLayout {
    pub(crate) scope: usize,
    pub(crate) slots: Range<usize>,
    /// It takes chunks of a stream that ends.
    pub(crate) consumes: bool,
    pub(crate) outputs: Vec<Output>,
    /// Signals that end a scope.
    pub(crate) stops: Vec<(Port, usize)>,
}

/// An output with its edges.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) port: Port,
    pub(crate) edges: Vec<usize>,
}

/// An input with the places that may feed it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) step: usize,
    pub(crate) port: Port,
    pub(crate) optional: bool,
    /// In the order of their levels; the last one that is switched on counts.
    pub(crate) cells: Range<usize>,
}

/// One place that feeds an input.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) slot: usize,
    /// Depth of the scope whose iterations renew the value; deeper loops see it again and again.
    pub(crate) level: u32,
    pub(crate) origin: Origin,
}

/// What fills a cell.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Edges from other steps of the same iteration.
    Edge,
    /// Loop-backs from the iteration before.
    Back,
    /// The plan.
    Input(Port),
    /// An earlier walk.
    Kept(KeptName),
}

/// One edge from an output.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) signal: bool,
    pub(crate) flow: Flow,
}

/// Where a value goes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Flow {
    /// It waits for the end of a loop.
    Exit(usize),
    /// It is offered in this iteration.
    Cell(usize),
    /// It is offered in the next iteration.
    Next(usize),
    /// It becomes a result of the walk.
    Result(usize),
    /// It goes to the client.
    Client(Modality),
    /// It is kept.
    Keep(KeptName),
    /// It went into a stream already: its items never pass through the cursor.
    Stream,
}

/// Where a value waits for the end of a loop, one for each edge and loop that it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    pub(crate) gather: bool,
    pub(crate) flow: Flow,
}
