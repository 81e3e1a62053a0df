//! A streaming edge between two partitions, as declared.

use crate::chunk::{AtEnd, ChunkPolicy};
use crate::names::{PartitionName, StreamName};

/// A channel from one partition of a request to another, with its policy and its credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Names the stream.
    pub name: StreamName,
    /// The partition whose step puts items in.
    pub from: PartitionName,
    /// The partition whose step takes chunks out.
    pub to: PartitionName,
    /// How items are cut into chunks.
    pub policy: ChunkPolicy,
    /// What the consumer sees when the producer is done.
    pub at_end: AtEnd,
    /// How many items may be under way; the producer stops there.
    pub credit: u64,
}

impl Stream {
    /// Credit of a stream that names none, unless its policy needs more.
    pub const CREDIT: u64 = 64;

    /// Declares a stream that ends with a last chunk and has enough credit for two whole chunks.
    pub fn new(
        name: impl Into<StreamName>,
        from: impl Into<PartitionName>,
        to: impl Into<PartitionName>,
        policy: ChunkPolicy,
    ) -> Self {
        Stream {
            name: name.into(),
            from: from.into(),
            to: to.into(),
            policy,
            at_end: AtEnd::Last,
            credit: policy.largest().saturating_mul(2).max(Self::CREDIT),
        }
    }

    /// Sets what the consumer sees when the producer is done.
    pub fn at_end(mut self, at_end: AtEnd) -> Self {
        self.at_end = at_end;
        self
    }

    /// Sets how many items may be under way.
    pub fn credit(mut self, items: u64) -> Self {
        self.credit = items;
        self
    }
}
