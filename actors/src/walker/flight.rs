//! Steps in flight: what was sent, to which incarnation, so that it can be sent again.

use mstar_graph::{FiringId, StepIx};
use mstar_supervisor::Incarnation;
use smallvec::SmallVec;
use tracing::Span;

use crate::messages::{NodeIx, Step, StepDone, StepId};
use crate::trace;

/// The steps of a request that are in flight: few.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: SmallVec<[Flight; 2]>,
}

/// A step in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    /// What is sent, as it was sent last.
    pub(crate) step: Step,
    pub(crate) ix: StepIx,
    pub(crate) firing: FiringId,
    /// The binding that serves it, and the node.
    pub(crate) slot: usize,
    pub(crate) node: NodeIx,
    /// The incarnation that has it; nobody, while its node is away.
    pub(crate) sent: Option<Incarnation>,
    pub(crate) span: Span,
}

// --- impl Flights ---

impl Flights {
    pub(crate) fn add(&mut self, flight: Flight) {
        self.flights.push(flight);
    }

    /// Takes a step off the list, unless its outcome comes from an incarnation that does not have it any more.
    pub(crate) fn land(&mut self, id: StepId, from: Incarnation) -> Option<Flight> {
        let at = self.flights.iter().position(|flight| flight.step.step == id && flight.sent == Some(from))?;
        Some(self.flights.swap_remove(at))
    }

    /// Returns the steps that a binding serves.
    pub(crate) fn of_slot(&mut self, slot: usize) -> impl Iterator<Item = &mut Flight> {
        self.flights.iter_mut().filter(move |flight| flight.slot == slot)
    }

    /// Returns whether a binding has a step to serve.
    pub(crate) fn any_of_slot(&self, slot: usize) -> bool {
        self.flights.iter().any(|flight| flight.slot == slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.flights.clear();
    }
}

// --- impl Flight ---

impl Flight {
    /// Records in the step's span where its time went.
    pub(crate) fn record(&self, done: &StepDone) {
        if self.span.is_none() {
            return;
        }
        self.span.record(trace::key::RANK, &*done.rank);
        self.span.record(trace::key::INCARNATION, done.incarnation.0);
        self.span.record(trace::key::ROWS, done.timing.rows);
        self.span.record(trace::key::WAIT_US, trace::micros(done.timing.waited));
        self.span.record(trace::key::RUN_US, trace::micros(done.timing.ran));
    }
}
