//! The stream side of a node's mailbox: items in the order of their sequence numbers, cut into chunks for the steps
//! that wait for them, and the credit that this gives back. Pure.

use std::collections::{BTreeMap, VecDeque};

use mstar_contract::{In, ItemChunk, RequestKey, Value, WorkId};
use mstar_graph::{AtEnd, Chunk, ChunkCutter, ChunkPolicy, Port, StreamIx};
use smallvec::SmallVec;

use crate::ids::IdMap;
use crate::messages::{Items, NodeIx};

/// The streams that a node consumes, by request. Of a request only the latest attempt is known.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    requests: IdMap<u64, Streams>,
}

#[derive(Debug)]
struct Streams {
    attempt: u32,
    buffers: SmallVec<[(StreamIx, Buffer); 1]>,
    waits: SmallVec<[Wait; 1]>,
}

#[derive(Debug)]
struct Buffer {
    cutter: ChunkCutter,
    /// Arrived and still needed; the first is item `base` of the stream.
    items: VecDeque<Value>,
    base: u64,
    /// Arrived before their turn.
    early: BTreeMap<u64, Value>,
    total: Option<u64>,
    /// Nobody wants what comes.
    abandoned: bool,
    /// Who gets the credit.
    producer: Option<NodeIx>,
}

/// A step that waits for one chunk of each of its streams.
#[derive(Debug)]
struct Wait {
    work: WorkId,
    ports: SmallVec<[(Port, StreamIx); 1]>,
}

/// A step whose chunks are there.
#[derive(Debug)]
pub(crate) struct Chunked {
    pub(crate) work: WorkId,
    pub(crate) inputs: SmallVec<[(Port, In); 1]>,
    /// Streams that ended with these chunks.
    pub(crate) ended: SmallVec<[StreamIx; 1]>,
    pub(crate) credit: SmallVec<[CreditNote; 1]>,
}

/// How much of a stream was consumed, and who wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditNote {
    pub(crate) producer: NodeIx,
    pub(crate) key: RequestKey,
    pub(crate) stream: StreamIx,
    pub(crate) consumed: u64,
}

// --- impl Inbox ---

impl Inbox {
    /// Expects a stream. The first stream of a newer attempt drops what is left of older ones.
    pub(crate) fn open(&mut self, key: RequestKey, stream: StreamIx, policy: ChunkPolicy, at_end: AtEnd) {
        let streams = self.requests.entry(key.id).or_insert_with(|| Streams::new(key.attempt));
        if streams.attempt < key.attempt {
            *streams = Streams::new(key.attempt);
        }
        if streams.attempt == key.attempt && streams.buffer(stream).is_none() {
            streams.buffers.push((stream, Buffer::new(policy, at_end)));
        }
    }

    /// Takes items in and drops those seen before. Returns credit when the producer asks for it.
    pub(crate) fn items(&mut self, run: Items) -> Option<CreditNote> {
        let Items { key, stream, from, first, items } = run;
        let buffer = self.streams(key)?.buffer(stream)?;
        buffer.producer = Some(from);
        // A producer that repeats itself has lost its credit with its life, or the answer that gave it.
        let asks = items.is_empty() || first < buffer.arrived();
        buffer.take(first, items);
        buffer.close_if_complete();
        if buffer.abandoned {
            buffer.drop_all();
        }
        let note = CreditNote { producer: from, key, stream, consumed: buffer.base };
        (asks || buffer.abandoned).then_some(note)
    }

    /// Drops what is there and what will come of a stream. Returns the credit that this gives back.
    pub(crate) fn abandon(&mut self, key: RequestKey, stream: StreamIx) -> Option<CreditNote> {
        let buffer = self.streams(key)?.buffer(stream)?;
        buffer.abandoned = true;
        buffer.drop_all();
        Some(CreditNote { producer: buffer.producer?, key, stream, consumed: buffer.base })
    }

    /// Notes how many items the stream has in all.
    pub(crate) fn close(&mut self, key: RequestKey, stream: StreamIx, items: u64) {
        if let Some(buffer) = self.streams(key).and_then(|streams| streams.buffer(stream)) {
            buffer.total = Some(items);
            buffer.close_if_complete();
        }
    }

    /// Lets a step wait for a chunk of each of its streams. Returns false when a stream is not open here.
    pub(crate) fn wait(&mut self, key: RequestKey, work: WorkId, ports: SmallVec<[(Port, StreamIx); 1]>) -> bool {
        let Some(streams) = self.streams(key) else { return false };
        let open = ports.iter().all(|(_, stream)| streams.buffer(*stream).is_some());
        if open {
            streams.waits.push(Wait { work, ports });
        }
        open
    }

    /// Returns the next step of a request whose chunks are all there.
    pub(crate) fn ready(&mut self, key: RequestKey) -> Option<Chunked> {
        let streams = self.streams(key)?;
        let at = streams.waits.iter().position(|wait| streams.whole(wait))?;
        let wait = streams.waits.remove(at);
        let mut chunked =
            Chunked { work: wait.work, inputs: SmallVec::new(), ended: SmallVec::new(), credit: SmallVec::new() };
        for (port, stream) in wait.ports {
            let buffer = streams.buffer(stream).expect("invariant: a step waits for open streams only");
            let before = buffer.base;
            let chunk = buffer.cut();
            if chunk.last {
                chunked.ended.push(stream);
            }
            chunked.inputs.push((port, In::Chunk(chunk)));
            if let Some(producer) = buffer.producer.filter(|_| buffer.base > before) {
                chunked.credit.push(CreditNote { producer, key, stream, consumed: buffer.base });
            }
        }
        Some(chunked)
    }

    /// Forgets an attempt and all before it.
    pub(crate) fn retire(&mut self, key: RequestKey) {
        if self.requests.get(&key.id).is_some_and(|streams| streams.attempt <= key.attempt) {
            self.requests.remove(&key.id);
        }
    }

    /// Returns how many streams have a buffer, and how many items lie in them.
    pub(crate) fn held(&self) -> (usize, usize) {
        let buffers = self.requests.values().flat_map(|streams| &streams.buffers);
        buffers.fold((0, 0), |(streams, items), (_, buffer)| {
            (streams + 1, items + buffer.items.len() + buffer.early.len())
        })
    }

    fn streams(&mut self, key: RequestKey) -> Option<&mut Streams> {
        self.requests.get_mut(&key.id).filter(|streams| streams.attempt == key.attempt)
    }
}

// --- impl Streams ---

impl Streams {
    fn new(attempt: u32) -> Self {
        Self { attempt, buffers: SmallVec::new(), waits: SmallVec::new() }
    }

    fn buffer(&mut self, stream: StreamIx) -> Option<&mut Buffer> {
        self.buffers.iter_mut().find(|(ix, _)| *ix == stream).map(|(_, buffer)| buffer)
    }

    /// Whether a chunk is there for each stream of a step.
    fn whole(&self, wait: &Wait) -> bool {
        let there =
            |stream: &StreamIx| self.buffers.iter().any(|(ix, buffer)| ix == stream && buffer.cutter.peek().is_some());
        wait.ports.iter().all(|(_, stream)| there(stream))
    }
}

// --- impl Buffer ---

impl Buffer {
    fn new(policy: ChunkPolicy, at_end: AtEnd) -> Self {
        Self {
            cutter: ChunkCutter::new(policy, at_end),
            items: VecDeque::new(),
            base: 0,
            early: BTreeMap::new(),
            total: None,
            abandoned: false,
            producer: None,
        }
    }

    fn arrived(&self) -> u64 {
        self.cutter.progress().arrived
    }

    /// Takes the items in that are due, keeps those that are early, drops those seen before.
    fn take(&mut self, first: u64, items: Vec<Value>) {
        if first == self.arrived() && self.early.is_empty() {
            self.cutter.arrived(items.len() as u64);
            self.items.extend(items);
            return;
        }
        self.early.extend((first..).zip(items).filter(|(at, _)| *at >= self.cutter.progress().arrived));
        while let Some(next) = self.early.remove(&self.arrived()) {
            self.items.push_back(next);
            self.cutter.arrived(1);
        }
    }

    fn drop_all(&mut self) {
        self.items.clear();
        self.base = self.arrived();
    }

    fn close_if_complete(&mut self) {
        if self.total == Some(self.arrived()) {
            self.cutter.close();
        }
    }

    /// Hands the next chunk over and drops what no later one needs.
    fn cut(&mut self) -> ItemChunk {
        let Chunk { items, context, last } = self.cutter.next().expect("invariant: a chunk was seen to be there");
        let place = |at: u64| usize::try_from(at - self.base).expect("invariant: a buffer fits in memory");
        let (from, to) = (place(items.start), place(items.end));
        // Items that no later chunk sees move; the others are shared.
        let oldest = self.cutter.oldest_needed().max(self.base);
        let moved = place(oldest).min(to);
        let mut values = Vec::with_capacity(to - from);
        values.extend(self.items.drain(..moved).skip(from));
        values.extend(self.items.range(from.max(moved) - moved..to - moved).cloned());
        let dropped = place(oldest) - moved;
        self.items.drain(..dropped.min(self.items.len()));
        self.base = oldest;
        let context = usize::try_from(context).expect("invariant: a chunk fits in memory");
        ItemChunk { items: values, start: items.start, context, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RequestKey = RequestKey { id: 7, attempt: 1 };
    const FROM: NodeIx = NodeIx(3);

    fn stream() -> StreamIx {
        let json = serde_json::json!(0);
        serde_json::from_value(json).unwrap()
    }

    fn run(first: u64, count: u64) -> Items {
        let items = (first..first + count).map(|n| Value::token(u32::try_from(n).unwrap())).collect();
        Items { key: KEY, stream: stream(), from: FROM, first, items }
    }

    fn opened(policy: ChunkPolicy) -> Inbox {
        let mut inbox = Inbox::default();
        inbox.open(KEY, stream(), policy, AtEnd::Last);
        inbox
    }

    fn wait(inbox: &mut Inbox) {
        assert!(inbox.wait(KEY, WorkId(1), SmallVec::from_elem(("in".into(), stream()), 1)));
    }

    /// The chunk's items, context, last and credit.
    fn next(inbox: &mut Inbox) -> Option<(Vec<u32>, usize, bool, Option<u64>)> {
        wait(inbox);
        let Some(chunked) = inbox.ready(KEY) else {
            inbox.requests.get_mut(&KEY.id).unwrap().waits.clear();
            return None;
        };
        let In::Chunk(chunk) = &chunked.inputs[0].1 else { panic!("no chunk") };
        let items = chunk.items.iter().map(|item| item.as_tokens().unwrap()[0]).collect();
        Some((items, chunk.context, chunk.last, chunked.credit.first().map(|note| note.consumed)))
    }

    #[test]
    fn items_come_in_the_order_of_their_numbers_and_once() {
        let mut inbox = opened(ChunkPolicy::Fixed(2));
        inbox.items(run(2, 2));
        assert_eq!(next(&mut inbox), None);
        inbox.items(run(0, 3));
        inbox.items(run(0, 2));
        assert_eq!(next(&mut inbox), Some((vec![0, 1], 0, false, Some(2))));
        assert_eq!(next(&mut inbox), Some((vec![2, 3], 0, false, Some(4))));
        assert_eq!(inbox.held(), (1, 0));
    }

    #[test]
    fn left_context_comes_again_and_costs_no_credit_twice() {
        let mut inbox = opened(ChunkPolicy::LeftContext { chunk: 3, left: 1 });
        inbox.items(run(0, 7));
        assert_eq!(next(&mut inbox), Some((vec![0, 1, 2], 0, false, Some(2))));
        assert_eq!(next(&mut inbox), Some((vec![2, 3, 4, 5], 1, false, Some(5))));
        assert_eq!(next(&mut inbox), None);
        inbox.close(KEY, stream(), 7);
        assert_eq!(next(&mut inbox), Some((vec![5, 6], 1, true, Some(7))));
        assert_eq!(inbox.held(), (1, 0));
    }

    #[test]
    fn the_end_counts_only_when_all_items_have_landed() {
        let mut inbox = opened(ChunkPolicy::Fixed(4));
        inbox.close(KEY, stream(), 2);
        inbox.items(run(0, 1));
        assert_eq!(next(&mut inbox), None);
        inbox.items(run(1, 1));
        assert_eq!(next(&mut inbox), Some((vec![0, 1], 0, true, Some(2))));
    }

    #[test]
    fn strangers_and_the_retired_leave_nothing_behind() {
        let mut inbox = opened(ChunkPolicy::Fixed(1));
        inbox.items(run(0, 5));
        inbox.retire(RequestKey { id: 7, attempt: 0 });
        assert_eq!(inbox.held(), (1, 5), "an older attempt's retirement changes nothing");
        inbox.retire(KEY);
        inbox.items(run(5, 1));
        assert_eq!(inbox.held(), (0, 0));
        assert!(!inbox.wait(KEY, WorkId(1), SmallVec::from_elem(("in".into(), stream()), 1)));
    }

    #[test]
    fn an_abandoned_stream_takes_all_and_keeps_nothing() {
        let mut inbox = opened(ChunkPolicy::Fixed(4));
        inbox.items(run(0, 2));
        assert_eq!(inbox.abandon(KEY, stream()).map(|note| note.consumed), Some(2));
        assert_eq!(inbox.items(run(2, 3)).map(|note| note.consumed), Some(5));
        assert_eq!(inbox.held(), (1, 0));
    }

    #[test]
    fn a_producer_without_memory_asks_for_its_credit() {
        let mut inbox = opened(ChunkPolicy::Fixed(2));
        inbox.items(run(0, 4));
        next(&mut inbox).unwrap();
        let note = CreditNote { producer: FROM, key: KEY, stream: stream(), consumed: 2 };
        assert_eq!(inbox.items(run(4, 0)), Some(note));
        assert_eq!(inbox.items(run(0, 3)), Some(note), "so does one that begins anew");
        assert_eq!(inbox.items(run(4, 1)), None);
    }
}
