//! How a stream is cut into chunks. A policy is a pure value: it looks at how far a stream has come
//! and says which items to hand over. Items themselves are never seen here.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Says when a stream's consumer fires, and on which items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkPolicy {
    /// Hands over this many items at a time.
    Fixed(u64),
    /// Hands over `window` items and moves on by `stride`; the rest of the window comes again.
    SlidingWindow {
        /// Items in a whole chunk.
        window: u64,
        /// Items between the starts of two chunks.
        stride: u64,
    },
    /// Hands over `chunk` new items, behind the `left` items that came before them.
    LeftContext {
        /// New items in a whole chunk.
        chunk: u64,
        /// Items handed over again in front of the new ones.
        left: u64,
    },
}

/// What the consumer of a stream sees when the producer is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtEnd {
    /// Exactly one chunk carries `last`, and it is the last one.
    Last,
    /// No chunk carries `last`: empty chunks follow without end, the consumer stops by itself.
    KeepRunning,
}

/// How far one stream of one request has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Items that arrived, without a gap, since the stream began.
    pub arrived: u64,
    /// First item of the next chunk.
    pub start: u64,
    /// End of what was handed over: items before it were seen at least once.
    pub seen: u64,
    /// Chunks handed over.
    pub chunks: u64,
    /// The producer is done and all its items have landed.
    pub closed: bool,
    /// The chunk that carries `last` was handed over.
    pub ended: bool,
}

/// A run of items to hand over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chunk {
    /// Where the items stand in the whole stream.
    pub items: Range<u64>,
    /// How many leading items were handed over before.
    pub context: u64,
    /// No chunk follows this one.
    pub last: bool,
}

/// A policy at work on one stream of one request.
#[derive(Clone, Debug)]
pub struct ChunkCutter {
    policy: ChunkPolicy,
    at_end: AtEnd,
    progress: Progress,
}

// --- impl ChunkPolicy ---

impl ChunkPolicy {
    /// Returns the next chunk to hand over, or nothing while too little has arrived. The caller
    /// records the answer with [`Progress::take`].
    pub fn cut(&self, at_end: AtEnd, progress: &Progress) -> Option<Chunk> {
        if progress.ended {
            return None;
        }
        let (wanted, advance) = self.whole(progress);
        let buffered = progress.arrived.saturating_sub(progress.start);
        if buffered >= wanted {
            let leaves_nothing = buffered == advance;
            return Some(Chunk {
                items: progress.start..progress.start + wanted,
                context: progress.seen - progress.start,
                last: progress.closed && leaves_nothing && at_end == AtEnd::Last,
            });
        }
        if !progress.closed {
            return None;
        }
        let start = match at_end {
            // What was all seen before is of no use to a consumer that goes on.
            AtEnd::KeepRunning if progress.seen == progress.arrived => progress.arrived,
            _ => progress.start,
        };
        Some(Chunk { items: start..progress.arrived, context: progress.seen - start, last: at_end == AtEnd::Last })
    }

    /// Returns how many items a whole chunk holds at most: a stream needs at least that much credit.
    pub fn largest(&self) -> u64 {
        match *self {
            ChunkPolicy::Fixed(items) => items,
            ChunkPolicy::SlidingWindow { window, .. } => window,
            ChunkPolicy::LeftContext { chunk, left } => chunk.saturating_add(left),
        }
    }

    /// Returns why the policy can't work, if it can't.
    pub fn flaw(&self) -> Option<String> {
        match *self {
            ChunkPolicy::Fixed(0) => Some("chunks of zero items".to_owned()),
            ChunkPolicy::SlidingWindow { window: 0, .. } => Some("a window of zero items".to_owned()),
            ChunkPolicy::SlidingWindow { stride: 0, .. } => Some("a stride of zero items".to_owned()),
            ChunkPolicy::SlidingWindow { window, stride } if stride > window => {
                Some(format!("a stride of {stride} skips items of a window of {window}"))
            }
            ChunkPolicy::LeftContext { chunk: 0, .. } => Some("chunks of zero items".to_owned()),
            ChunkPolicy::LeftContext { chunk, left } if left > chunk => {
                Some(format!("a left context of {left} exceeds the chunk of {chunk}"))
            }
            _ => None,
        }
    }

    /// Items in the next whole chunk, and by how many the start moves after it.
    fn whole(&self, progress: &Progress) -> (u64, u64) {
        match *self {
            ChunkPolicy::Fixed(items) => (items, items),
            ChunkPolicy::SlidingWindow { window, stride } => (window, stride),
            ChunkPolicy::LeftContext { chunk, left } if progress.chunks == 0 => (chunk, chunk.saturating_sub(left)),
            ChunkPolicy::LeftContext { chunk, left } => (chunk + left, chunk),
        }
    }
}

// --- impl Progress ---

impl Progress {
    /// Records that `policy` handed over `chunk`.
    pub fn take(&mut self, policy: &ChunkPolicy, chunk: &Chunk) {
        let (wanted, advance) = policy.whole(self);
        let whole = chunk.items.end - chunk.items.start == wanted && chunk.items.start == self.start;
        self.start = if whole { self.start + advance } else { chunk.items.end };
        self.seen = self.seen.max(chunk.items.end);
        self.chunks += 1;
        self.ended = chunk.last;
    }
}

// --- impl Chunk ---

impl Chunk {
    /// Returns the items that were not handed over before.
    pub fn fresh(&self) -> Range<u64> {
        self.items.start + self.context..self.items.end
    }

    /// Returns how many items the chunk holds, context included.
    pub fn len(&self) -> u64 {
        self.items.end - self.items.start
    }

    /// Reports whether the chunk holds no item at all.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

// --- impl ChunkCutter ---

impl ChunkCutter {
    /// Starts at the beginning of a stream.
    pub fn new(policy: ChunkPolicy, at_end: AtEnd) -> Self {
        Self { policy, at_end, progress: Progress::default() }
    }

    /// Records that `items` more items arrived, in the order of their sequence numbers.
    pub fn arrived(&mut self, items: u64) {
        debug_assert!(!self.progress.closed || items == 0, "a closed stream takes no items");
        self.progress.arrived += items;
    }

    /// Records that the producer is done and all its items have landed. Closing twice is the same.
    pub fn close(&mut self) {
        self.progress.closed = true;
    }

    /// Returns the next chunk without taking it.
    pub fn peek(&self) -> Option<Chunk> {
        self.policy.cut(self.at_end, &self.progress)
    }

    /// Hands over the next chunk, or nothing while too little has arrived.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`: not an iterator")]
    pub fn next(&mut self) -> Option<Chunk> {
        let chunk = self.peek()?;
        self.progress.take(&self.policy, &chunk);
        Some(chunk)
    }

    /// Returns the first item that a later chunk may hand over: those before it can be dropped.
    pub fn oldest_needed(&self) -> u64 {
        if self.progress.ended { self.progress.arrived } else { self.progress.start }
    }

    /// Returns how far the stream has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Reports whether the chunk that carries `last` was handed over.
    pub fn ended(&self) -> bool {
        self.progress.ended
    }
}
