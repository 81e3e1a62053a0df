//! Which rows go into the next batch. Rows of one op, first come first served; ops take turns; rows of running loops
//! that are expected back at once are waited for, so that batches do not fall apart. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use mstar_contract::{OpDecl, RequestKey, Row};
use tokio::time::Instant;

use crate::ids::IdSet;
use crate::messages::OpIx;

/// The bounds of a node's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most rows of a batch.
    pub max_rows: usize,
    /// Most tokens of work of a batch; a single row may exceed it.
    pub max_tokens: usize,
    /// How long rows that are here wait for those expected back.
    pub wait_us: u64,
}

/// What to do now.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Compute these rows.
    Run(OpIx, Vec<Row>),
    /// Rows are here, others are expected: ask again soon, after [`Batcher::ripen`].
    Wait,
    /// There is nothing to do.
    Idle,
}

/// The queues of a node.
#[derive(Debug)]
pub(crate) struct Batcher {
    queues: Vec<OpQueue>,
    limits: BatchLimits,
    busy: bool,
    turn: u64,
    /// Requests whose rows were in the last batch and are not back.
    expected: IdSet<u64>,
    awaited: usize,
    ended: Option<Instant>,
    asked: u32,
    /// Waits in a row that were in vain.
    vain: u32,
    /// How often room was made, and how often when the batch under way began.
    made: u64,
    made_before: u64,
}

#[derive(Debug)]
struct OpQueue {
    max_rows: usize,
    rows: VecDeque<Row>,
    /// How many of the rows were here when the last batch ended: they have waited enough.
    old: usize,
    /// Its first row found no room.
    full: bool,
    last_turn: u64,
}

/// Times that a node asks itself again before it stops to wait, whatever the clock says.
const MOST_ASKED: u32 = 64;
/// After so many waits in vain, only each so-manieth batch is waited for.
const VAIN: u32 = 4;
const TRY_AGAIN: u64 = 32;

impl Default for BatchLimits {
    fn default() -> Self {
        Self { max_rows: 16, max_tokens: 512, wait_us: 200 }
    }
}

// --- impl Batcher ---

impl Batcher {
    pub(crate) fn new(ops: &[OpDecl], limits: BatchLimits) -> Self {
        let most = |op: &OpDecl| if op.max_rows == 0 { limits.max_rows } else { limits.max_rows.min(op.max_rows) };
        let queue =
            |op| OpQueue { max_rows: most(op).max(1), rows: VecDeque::new(), old: 0, full: false, last_turn: 0 };
        Self {
            queues: ops.iter().map(queue).collect(),
            limits,
            busy: false,
            turn: 0,
            expected: IdSet::default(),
            awaited: 0,
            ended: None,
            asked: 0,
            vain: 0,
            made: 0,
            made_before: 0,
        }
    }

    /// Queues a row.
    pub(crate) fn push(&mut self, op: OpIx, row: Row) {
        if self.expected.remove(&row.key.id) && self.expected.is_empty() {
            self.vain = 0;
        }
        self.queue(op).rows.push_back(row);
    }

    /// Queues rows, in their order, before all others: they were in a batch and are not done.
    pub(crate) fn push_front(&mut self, op: OpIx, rows: Vec<Row>) {
        let queue = self.queue(op);
        queue.old += rows.len();
        rows.into_iter().rev().for_each(|row| queue.rows.push_front(row));
    }

    /// Queues rows before all others, and none of this op runs before room is made, unless it was while they were away.
    pub(crate) fn park(&mut self, op: OpIx, rows: Vec<Row>) {
        let full = !rows.is_empty() && self.made == self.made_before;
        self.queue(op).full = full;
        self.push_front(op, rows);
    }

    /// Notes that there may be room again.
    pub(crate) fn room_made(&mut self) {
        self.made += 1;
        self.queues.iter_mut().for_each(|queue| queue.full = false);
    }

    /// Decides what to compute.
    pub(crate) fn decide(&mut self) -> Decision {
        if self.busy {
            return Decision::Idle;
        }
        let waiting = !self.expected.is_empty();
        let runnable = |queue: &&OpQueue| !queue.full && !queue.rows.is_empty();
        // A row that comes late to a running loop joins it; one of another op uses the time that the loop is away.
        let apart = |queue: &OpQueue| queue.old > 0 && queue.last_turn != self.turn;
        let ripe = |queue: &OpQueue| !waiting || apart(queue) || queue.rows.len() >= queue.max_rows;
        if !self.queues.iter().any(|queue| runnable(&queue)) {
            return Decision::Idle;
        }
        let order = |(_, queue): &(usize, &OpQueue)| (queue.old == 0, queue.last_turn);
        let queues = self.queues.iter().enumerate();
        let next = queues.filter(|(_, queue)| runnable(queue) && ripe(queue)).min_by_key(order);
        let Some((at, _)) = next else { return Decision::Wait };
        self.turn += 1;
        self.busy = true;
        self.made_before = self.made;
        let (turn, queue) = (self.turn, &mut self.queues[at]);
        queue.last_turn = turn;
        let count = queue.rows.len().min(queue.max_rows);
        queue.old = queue.old.saturating_sub(count);
        let rows = queue.rows.drain(..count).collect();
        Decision::Run(OpIx(u16::try_from(at).expect("invariant: few ops")), rows)
    }

    /// Notes that the batch is over; the requests of `back` are likely to send another row at once.
    pub(crate) fn finished(&mut self, back: impl Iterator<Item = RequestKey>, now: Instant) {
        self.busy = false;
        self.ended = Some(now);
        self.asked = 0;
        self.queues.iter_mut().for_each(|queue| queue.old = queue.rows.len());
        self.expected.clear();
        let patient = self.vain < VAIN || self.turn.is_multiple_of(TRY_AGAIN);
        if self.limits.wait_us > 0 && patient {
            self.expected.extend(back.map(|key| key.id));
        }
        self.awaited = self.expected.len();
    }

    /// Gives up waiting when it was long enough.
    pub(crate) fn ripen(&mut self, now: Instant) {
        self.asked += 1;
        let waited = self.ended.map_or(Duration::MAX, |ended| now.duration_since(ended));
        let enough = waited >= Duration::from_micros(self.limits.wait_us) || self.asked >= MOST_ASKED;
        if enough && !self.expected.is_empty() {
            self.vain = if self.expected.len() * 2 > self.awaited { self.vain + 1 } else { 0 };
            self.expected.clear();
        }
    }

    /// Forgets an attempt's rows and all before them, and expects the request back no more.
    pub(crate) fn retire(&mut self, key: RequestKey) {
        self.expected.remove(&key.id);
        for queue in &mut self.queues {
            let mut at = 0;
            let old = queue.old;
            queue.rows.retain(|row| {
                at += 1;
                let stays = row.key.id != key.id || row.key.attempt > key.attempt;
                if !stays && at <= old {
                    queue.old -= 1;
                }
                stays
            });
        }
    }

    /// Expects a request back no more; it has no row here.
    pub(crate) fn unexpect(&mut self, key: RequestKey) {
        self.expected.remove(&key.id);
    }

    /// Returns whether rows are expected back.
    pub(crate) fn expects(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Returns how many rows are queued.
    pub(crate) fn queued(&self) -> usize {
        self.queues.iter().map(|queue| queue.rows.len()).sum()
    }

    /// Returns how many rows are queued and do not wait for room.
    pub(crate) fn runnable(&self) -> usize {
        self.queues.iter().filter(|queue| !queue.full).map(|queue| queue.rows.len()).sum()
    }

    /// Returns whether a batch is under way.
    pub(crate) fn busy(&self) -> bool {
        self.busy
    }

    fn queue(&mut self, op: OpIx) -> &mut OpQueue {
        &mut self.queues[usize::from(op.0)]
    }
}

#[cfg(test)]
mod tests;
