//! The steps that a node holds, from their arrival to the report to their walker. Pure.

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{Failure, In, OpDecl, RequestKey, Row, RowError, RowOutput, TraceContext, Value, WorkId};
use mstar_graph::{Port, StreamIx};
use mstar_supervisor::Incarnation;
use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;

use crate::ids::IdMap;
use crate::messages::{NodeIx, Step, StepDone, StepTiming, StreamOutput};
use crate::node::batcher::Ticket;
use crate::trace;

/// The steps of a node.
#[derive(Debug)]
pub(crate) struct Works {
    node: NodeIx,
    incarnation: Incarnation,
    rank: Arc<str>,
    ops: Arc<[OpDecl]>,
    next: u64,
    works: IdMap<WorkId, Work>,
    /// Requests that sent steps and are not retired.
    requests: IdMap<u64, Request>,
}

#[derive(Debug, Default)]
struct Request {
    attempt: u32,
    works: SmallVec<[WorkId; 2]>,
}

#[derive(Debug)]
struct Work {
    step: Step,
    place: Place,
    /// When all its inputs were there.
    ready: Instant,
    timing: StepTiming,
    ended: SmallVec<[StreamIx; 1]>,
    span: Span,
    outcome: Option<StepDone>,
    /// Streams whose items have not all left.
    leaving: usize,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the inbox.
    Inbox,
    /// In the batcher.
    Queue,
    /// On the rank.
    Rank,
    /// In the outbox.
    Outbox,
}

/// A row that is done: what goes into streams. The rest waits in the work.
#[derive(Debug)]
pub(crate) struct DoneRow {
    pub(crate) key: RequestKey,
    pub(crate) waited: Duration,
    pub(crate) streams: SmallVec<[(StreamOutput, Vec<Value>); 1]>,
}

/// What a retirement took away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Among others a step that was in the batcher.
    Queued,
    /// Nothing that was in the batcher.
    Other,
}

// --- impl Works ---

impl Works {
    pub(crate) fn new(node: NodeIx, incarnation: Incarnation, rank: Arc<str>, ops: Arc<[OpDecl]>) -> Self {
        Self { node, incarnation, rank, ops, next: 0, works: IdMap::default(), requests: IdMap::default() }
    }

    /// Takes a step whose inputs are all there, and returns its row.
    pub(crate) fn queue(&mut self, step: Step, now: Instant) -> (Ticket, Row) {
        let id = self.add(step, Place::Queue, Span::none(), now);
        let work = self.works.get_mut(&id).expect("invariant: it was just added");
        (work.ticket(), work.row(id, &self.ops))
    }

    /// Takes a step that waits for chunks.
    pub(crate) fn wait(&mut self, step: Step, span: Span, now: Instant) -> WorkId {
        self.add(step, Place::Inbox, span, now)
    }

    /// Gives a step its chunks, and returns its row.
    pub(crate) fn chunked(
        &mut self,
        id: WorkId,
        inputs: SmallVec<[(Port, In); 1]>,
        ended: SmallVec<[StreamIx; 1]>,
        now: Instant,
    ) -> Option<(Ticket, Row)> {
        let work = self.works.get_mut(&id)?;
        let span = std::mem::replace(&mut work.span, Span::none());
        if !span.is_none() {
            let items = |input: &In| if let In::Chunk(chunk) = input { chunk.items.len() } else { 0 };
            span.record(trace::key::ITEMS, inputs.iter().map(|(_, input)| items(input)).sum::<usize>());
        }
        (work.place, work.ready, work.ended) = (Place::Queue, now, ended);
        work.step.inputs.extend(inputs);
        Some((work.ticket(), work.row(id, &self.ops)))
    }

    /// Notes that a row goes to the rank.
    pub(crate) fn run(&mut self, id: WorkId, rows: usize, now: Instant) {
        if let Some(work) = self.works.get_mut(&id) {
            work.place = Place::Rank;
            work.timing.rows = u32::try_from(rows).unwrap_or(u32::MAX);
            work.timing.waited = now.saturating_duration_since(work.ready).saturating_sub(work.timing.ran);
        }
    }

    /// Notes that a row came back from a batch and goes into another one. Returns nothing when its request was retired.
    pub(crate) fn again(&mut self, id: WorkId, ran: Duration) -> Option<Ticket> {
        let work = self.works.get_mut(&id)?;
        work.place = Place::Queue;
        work.timing.ran += ran;
        Some(work.ticket())
    }

    /// Takes what came of a row, and returns what goes into streams.
    pub(crate) fn done(&mut self, id: WorkId, result: Result<RowOutput, RowError>, ran: Duration) -> Option<DoneRow> {
        let work = self.works.get_mut(&id)?;
        work.timing.ran += ran;
        work.place = Place::Outbox;
        let mut result = result.map_err(Failure::from);
        let mut streams = SmallVec::new();
        if let Ok(output) = &mut result {
            for stream in std::mem::take(&mut work.step.stream_outputs) {
                let items = take_items(output, &stream);
                streams.push((stream, items));
            }
        }
        let sent = streams
            .iter()
            .map(|(stream, items): &(StreamOutput, Vec<Value>)| (stream.stream, stream.next + items.len() as u64));
        work.leaving = streams.len();
        work.outcome = Some(StepDone {
            key: work.step.key,
            step: work.step.step,
            node: self.node,
            incarnation: self.incarnation,
            rank: Arc::clone(&self.rank),
            result,
            ended: std::mem::take(&mut work.ended),
            sent: sent.collect(),
            timing: work.timing,
        });
        Some(DoneRow { key: work.step.key, waited: work.timing.waited, streams })
    }

    /// Notes that a step's items in one of its streams have all left.
    pub(crate) fn left(&mut self, id: WorkId) {
        if let Some(work) = self.works.get_mut(&id) {
            work.leaving = work.leaving.saturating_sub(1);
        }
    }

    /// Returns a step's outcome once nothing holds it back, and forgets the step.
    pub(crate) fn take_reportable(&mut self, id: WorkId) -> Option<StepDone> {
        let work = self.works.get_mut(&id)?;
        if work.leaving > 0 {
            return None;
        }
        let done = work.outcome.take()?;
        self.works.remove(&id);
        if let Some(request) = self.requests.get_mut(&done.key.id) {
            request.works.retain(|work| *work != id);
        }
        Some(done)
    }

    /// Forgets an attempt and all before it. Returns nothing when no step of them came here.
    pub(crate) fn retire(&mut self, key: RequestKey) -> Option<Gone> {
        let request = self.requests.get(&key.id)?;
        if request.attempt > key.attempt {
            return None;
        }
        let request = self.requests.remove(&key.id)?;
        let works = request.works.iter().filter_map(|work| self.works.remove(work));
        let queued = works.filter(|work| work.place == Place::Queue).count();
        Some(if queued > 0 { Gone::Queued } else { Gone::Other })
    }

    /// Returns the span context of a step.
    pub(crate) fn trace(&self, id: WorkId) -> Option<&TraceContext> {
        self.works.get(&id).map(|work| &work.step.trace)
    }

    /// Returns how many steps are here.
    pub(crate) fn count(&self) -> usize {
        self.works.len()
    }

    /// Returns how many requests are known.
    pub(crate) fn requests(&self) -> usize {
        self.requests.len()
    }

    fn add(&mut self, step: Step, place: Place, span: Span, now: Instant) -> WorkId {
        let id = WorkId(self.next);
        self.next += 1;
        let request = self.requests.entry(step.key.id).or_default();
        if request.attempt < step.key.attempt {
            // The retirement of the attempt before is on its way, or was lost with an earlier life.
            request.attempt = step.key.attempt;
        }
        request.works.push(id);
        let timing = StepTiming::default();
        let (ended, outcome) = (SmallVec::new(), None);
        self.works.insert(id, Work { step, place, ready: now, timing, ended, span, outcome, leaving: 0 });
        id
    }
}

// --- impl Work ---

impl Work {
    fn ticket(&self) -> Ticket {
        Ticket { op: self.step.op, came: self.ready, due: self.step.due }
    }

    fn row(&mut self, id: WorkId, ops: &[OpDecl]) -> Row {
        let op = ops[usize::from(self.step.op.0)].name.clone();
        self.step.row(id, op)
    }
}

/// Takes the values of an output that leads to a stream; copies them where the walker wants them as well.
fn take_items(output: &mut RowOutput, stream: &StreamOutput) -> Vec<Value> {
    if stream.copied {
        let of_port = output.outputs.iter().filter(|(port, _)| *port == stream.port);
        return of_port.map(|(_, value)| value.clone()).collect();
    }
    let mut items = Vec::new();
    let mut kept = SmallVec::new();
    for (port, value) in output.outputs.drain(..) {
        if port == stream.port { items.push(value) } else { kept.push((port, value)) }
    }
    output.outputs = kept;
    items
}
