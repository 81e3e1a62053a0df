//! Which rows go into the next batch. Rows of one op, or of all ops that share passes, form a *lane*; rows go in the
//! order of [`crate::order`], and the lane whose first row comes first is next. Rows of running loops that are expected back at once are waited for, so that
//! batches do not fall apart. Pure.

mod lane;

use std::time::Duration;

use mstar_contract::{OpDecl, RequestKey, Row};
use tokio::time::Instant;

use crate::ids::IdSet;
use crate::messages::OpIx;
use lane::Lane;

/// The bounds of a node's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most rows of a batch.
    pub max_rows: usize,
    /// Most tokens of work of a batch, where an engine counts them.
    pub max_tokens: usize,
    /// How long rows that are here wait for those expected back, or longer after a batch that took long; 0: not at all.
    pub wait_us: u64,
}

/// What to do now.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Compute these rows; the first of their listeners runs dry then.
    Run(Vec<Row>, Option<Instant>),
    /// Rows are here, others are expected: ask again soon, after [`Batcher::ripen`].
    Wait,
    /// There is nothing to do.
    Idle,
}

/// What a queue knows of a row, beyond the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) op: OpIx,
    /// When it came to the node, with all its inputs.
    pub(crate) came: Instant,
    /// When its listener runs dry.
    pub(crate) due: Option<Instant>,
}

/// The queues of a node.
#[derive(Debug)]
pub(crate) struct Batcher {
    lanes: Vec<Lane>,
    /// The lane of each op.
    lane_of: Vec<usize>,
    limits: BatchLimits,
    busy: bool,
    batches: u64,
    /// The lane of the last batch.
    last: Option<usize>,
    /// Requests whose rows were in the last batch and are not back.
    expected: IdSet<u64>,
    awaited: usize,
    ended: Option<Instant>,
    /// How long they are waited for.
    patience: Duration,
    asked: u32,
    /// Waits in a row that were in vain.
    vain: u32,
    /// How often room was made, and how often when the batch under way began.
    made: u64,
    made_before: u64,
}

/// The share of a batch's time that waiting for the next one to be whole may take: rows that miss it cost a batch of their
/// own, which takes about as long again where it waits for the weights.
const SHARE: u32 = 16;
/// The longest wait.
const LONGEST: Duration = Duration::from_millis(2);
/// Times that a node asks itself again at once, then after pauses, before it stops to wait, whatever the clock says.
const ASKED_AT_ONCE: u32 = 64;
const MOST_ASKED: u32 = ASKED_AT_ONCE + 8;
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
        let (mut lanes, mut lane_of, mut shared) = (Vec::new(), Vec::new(), None);
        for op in ops {
            let most = if op.max_rows == 0 { limits.max_rows } else { limits.max_rows.min(op.max_rows) };
            let known = shared.filter(|_| op.shares_passes());
            let at = known.unwrap_or(lanes.len());
            match known {
                None => lanes.push(Lane::new(most)),
                Some(at) => Lane::bound(&mut lanes[at], most),
            }
            if op.shares_passes() {
                shared = Some(at);
            }
            lane_of.push(at);
        }
        Self {
            lanes,
            lane_of,
            limits,
            busy: false,
            batches: 0,
            last: None,
            expected: IdSet::default(),
            awaited: 0,
            ended: None,
            patience: Duration::ZERO,
            asked: 0,
            vain: 0,
            made: 0,
            made_before: 0,
        }
    }

    /// Queues a row that came.
    pub(crate) fn push(&mut self, ticket: Ticket, decl: &OpDecl, row: Row) {
        if self.expected.remove(&row.key.id) && self.expected.is_empty() {
            self.vain = 0;
        }
        self.lane(ticket.op).push(ticket, decl, row);
    }

    /// Queues a row that was in a batch and is not done.
    pub(crate) fn push_more(&mut self, ticket: Ticket, row: Row) {
        self.lane(ticket.op).push_more(ticket, row);
    }

    /// Queues a row that found no room: none of its lane begins before room is made, unless it was while the row was
    /// away.
    pub(crate) fn park(&mut self, ticket: Ticket, row: Row) {
        let full = self.made == self.made_before;
        self.lane(ticket.op).park(ticket, row, full);
    }

    /// Notes that there may be room again.
    pub(crate) fn room_made(&mut self) {
        self.made += 1;
        self.lanes.iter_mut().for_each(Lane::room_made);
    }

    /// Decides what to compute.
    pub(crate) fn decide(&mut self) -> Decision {
        if self.busy {
            return Decision::Idle;
        }
        let waiting = !self.expected.is_empty();
        // A row that comes late to a running loop joins it; one of another lane uses the time that the loop is away.
        let apart = |at: usize, lane: &Lane| {
            Some(at) != self.last && self.ended.is_some_and(|ended| lane.has_waited_since(ended))
        };
        let mut runnable = false;
        let mut next: Option<(Instant, usize)> = None;
        for (at, lane) in self.lanes.iter().enumerate() {
            let Some(first) = lane.first() else { continue };
            runnable = true;
            let ripe = !waiting || apart(at, lane) || lane.is_full();
            if ripe && next.is_none_or(|(earliest, _)| first < earliest) {
                next = Some((first, at));
            }
        }
        let Some((_, at)) = next else { return if runnable { Decision::Wait } else { Decision::Idle } };
        self.busy = true;
        self.batches += 1;
        self.last = Some(at);
        self.made_before = self.made;
        let (rows, due) = self.lanes[at].take();
        Decision::Run(rows, due)
    }

    /// Notes that the batch is over, which took so long; the requests of `back` are likely to send another row at once.
    pub(crate) fn finished(&mut self, back: impl Iterator<Item = RequestKey>, ran: Duration, now: Instant) {
        self.busy = false;
        self.ended = Some(now);
        self.patience = Duration::from_micros(self.limits.wait_us).max((ran / SHARE).min(LONGEST));
        self.asked = 0;
        self.expected.clear();
        let patient = self.vain < VAIN || self.batches.is_multiple_of(TRY_AGAIN);
        if self.limits.wait_us > 0 && patient {
            self.expected.extend(back.map(|key| key.id));
        }
        self.awaited = self.expected.len();
    }

    /// Gives up waiting when it was long enough.
    pub(crate) fn ripen(&mut self, now: Instant) {
        self.asked += 1;
        let waited = self.ended.map_or(Duration::MAX, |ended| now.duration_since(ended));
        let enough = waited >= self.patience || self.asked >= MOST_ASKED;
        if enough && !self.expected.is_empty() {
            self.vain = if self.expected.len() * 2 > self.awaited { self.vain + 1 } else { 0 };
            self.expected.clear();
        }
    }

    /// Returns whether to ask again at once: rows are mostly back before a timer would tell.
    pub(crate) fn in_a_hurry(&self) -> bool {
        self.asked < ASKED_AT_ONCE
    }

    /// Forgets an attempt's rows and all before them, and expects the request back no more.
    pub(crate) fn retire(&mut self, key: RequestKey) {
        self.expected.remove(&key.id);
        self.lanes.iter_mut().for_each(|lane| lane.retire(key));
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
        self.lanes.iter().map(Lane::queued).sum()
    }

    /// Returns how many rows are queued and do not wait for room.
    pub(crate) fn runnable(&self) -> usize {
        self.lanes.iter().map(Lane::runnable).sum()
    }

    /// Returns whether a batch is under way.
    pub(crate) fn busy(&self) -> bool {
        self.busy
    }

    fn lane(&mut self, op: OpIx) -> &mut Lane {
        &mut self.lanes[self.lane_of[usize::from(op.0)]]
    }
}

#[cfg(test)]
mod tests;
