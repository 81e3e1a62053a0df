//! One lane of a node's queues: rows that may share a batch, in the order of [`crate::order`]. Pure.

use std::collections::VecDeque;

use mstar_contract::{KvUse, OpDecl, RequestKey, Row};
use tokio::time::Instant;

use super::Ticket;
use crate::order::promised;

/// Rows that may share a batch.
#[derive(Debug)]
pub(super) struct Lane {
    max_rows: usize,
    /// Rows that go on with a sequence: short, and somebody reads along.
    steps: Queue,
    /// Rows of which a part is done: they hold room.
    begun: Queue,
    /// All others.
    fresh: Queue,
    /// The first fresh row found no room.
    full: bool,
    /// The last batch began with a step: where there is place for one row only, the others are next.
    stepped: bool,
}

/// Rows in the order of what they were promised when they came, however often they were in a batch since.
#[derive(Debug, Default)]
struct Queue(VecDeque<(Ticket, Row)>);

// --- impl Lane ---

impl Lane {
    pub(super) fn new(max_rows: usize) -> Self {
        let (steps, begun, fresh) = (Queue::default(), Queue::default(), Queue::default());
        Self { max_rows: max_rows.max(1), steps, begun, fresh, full: false, stepped: false }
    }

    /// Lets batches have at most so many rows.
    pub(super) fn bound(&mut self, max_rows: usize) {
        self.max_rows = self.max_rows.min(max_rows.max(1));
    }

    pub(super) fn push(&mut self, ticket: Ticket, decl: &OpDecl, row: Row) {
        let goes_on = decl.kv == Some(KvUse::Extend) && row.rebuild.is_none();
        if goes_on { self.steps.push(ticket, row) } else { self.fresh.push(ticket, row) }
    }

    pub(super) fn push_more(&mut self, ticket: Ticket, row: Row) {
        self.begun.push(ticket, row);
    }

    pub(super) fn park(&mut self, ticket: Ticket, row: Row, full: bool) {
        self.full |= full;
        self.fresh.push(ticket, row);
    }

    pub(super) fn room_made(&mut self) {
        self.full = false;
    }

    /// Returns when the first row that can run was promised its turn.
    pub(super) fn first(&self) -> Option<Instant> {
        let fresh = self.fresh.first().filter(|_| !self.full);
        [self.steps.first(), self.begun.first(), fresh].into_iter().flatten().min()
    }

    /// Returns whether a row that can run came before.
    pub(super) fn has_waited_since(&self, then: Instant) -> bool {
        let fresh = [&self.fresh].into_iter().filter(|_| !self.full);
        let queues = [&self.steps, &self.begun].into_iter().chain(fresh);
        queues.flat_map(|queue| &queue.0).any(|(ticket, _)| ticket.came <= then)
    }

    /// Returns whether the rows that can run fill a batch.
    pub(super) fn is_full(&self) -> bool {
        self.runnable() >= self.max_rows
    }

    /// Takes a batch, with when the first of its listeners runs dry: steps come first, but one of the others always
    /// finds a place.
    pub(super) fn take(&mut self) -> (Vec<Row>, Option<Instant>) {
        let others = self.runnable() - self.steps.0.len();
        let kept = match self.max_rows {
            1 => usize::from(others > 0 && self.stepped),
            _ => usize::from(others > 0),
        };
        let mut batch = Vec::with_capacity(self.max_rows.min(self.runnable()));
        self.steps.drain(self.max_rows - kept, &mut batch);
        self.stepped = !batch.is_empty();
        self.begun.drain(self.max_rows, &mut batch);
        if !self.full {
            self.fresh.drain(self.max_rows, &mut batch);
        }
        let due = batch.iter().filter_map(|(ticket, _)| ticket.due).min();
        (batch.into_iter().map(|(_, row)| row).collect(), due)
    }

    pub(super) fn retire(&mut self, key: RequestKey) {
        for queue in [&mut self.steps, &mut self.begun, &mut self.fresh] {
            queue.0.retain(|(_, row)| row.key.id != key.id || row.key.attempt > key.attempt);
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.steps.0.len() + self.begun.0.len() + self.fresh.0.len()
    }

    pub(super) fn runnable(&self) -> usize {
        self.queued() - if self.full { self.fresh.0.len() } else { 0 }
    }
}

// --- impl Queue ---

impl Queue {
    /// Puts a row in its place: behind all that were promised an earlier turn.
    fn push(&mut self, ticket: Ticket, row: Row) {
        let place = |ticket: &Ticket, row: &Row| (promised(ticket.came, ticket.due), row.work);
        let mine = place(&ticket, &row);
        let at = self.0.partition_point(|(ticket, row)| place(ticket, row) < mine);
        self.0.insert(at, (ticket, row));
    }

    fn first(&self) -> Option<Instant> {
        self.0.front().map(|(ticket, _)| promised(ticket.came, ticket.due))
    }

    /// Moves rows to a batch until it has `most`.
    fn drain(&mut self, most: usize, batch: &mut Vec<(Ticket, Row)>) {
        let count = self.0.len().min(most.saturating_sub(batch.len()));
        batch.extend(self.0.drain(..count));
    }
}
