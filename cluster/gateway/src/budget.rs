//! How many bytes of requests are in memory: each body takes its bytes from one budget as they come, and gives them
//! back when the last of them is freed.
//!
//! Bytes are taken as they come, not as they are announced: otherwise a few clients that announce much and send little
//! could keep everybody else out.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that all bodies in memory may have together. Clones share them.
#[derive(Clone, Debug)]
pub struct BodyBudget {
    free: Arc<Semaphore>,
    total: usize,
}

/// What a request has taken of the budget. Dropped, it gives all back.
#[derive(Debug)]
pub(crate) struct Held {
    budget: BodyBudget,
    taken: Option<OwnedSemaphorePermit>,
}

/// Bytes that are counted for as long as they live.
struct Counted {
    bytes: Bytes,
    _held: Arc<Held>,
}

// --- impl BodyBudget ---

impl BodyBudget {
    /// Returns a budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        let total = bytes.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(total)), total }
    }

    /// Returns how many bytes there may be.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns how many bytes are taken.
    pub fn taken(&self) -> usize {
        self.total - self.free.available_permits()
    }

    /// Returns a share with nothing taken yet.
    pub(crate) fn share(&self) -> Held {
        Held { budget: self.clone(), taken: None }
    }
}

// --- impl Held ---

impl Held {
    /// Returns the budget that it belongs to.
    pub(crate) fn budget(&self) -> &BodyBudget {
        &self.budget
    }

    /// Takes more bytes; false when there are too few.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let Ok(count) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.budget.free).try_acquire_many_owned(count) else { return false };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        true
    }
}

// --- impl Counted ---

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns bytes that keep what is held until their last clone is dropped.
pub(crate) fn counted(bytes: Bytes, held: &Arc<Held>) -> Bytes {
    Bytes::from_owner(Counted { bytes, _held: Arc::clone(held) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_until_there_are_none_and_come_back_with_the_last_clone() {
        let budget = BodyBudget::new(100);
        let mut held = budget.share();
        assert!(held.take(60) && held.take(40) && !held.take(1));
        assert!(!budget.share().take(1));
        let held = Arc::new(held);
        let bytes = counted(Bytes::from_static(b"sound"), &held);
        let part = bytes.slice(1..3);
        drop((held, bytes));
        assert_eq!((&part[..], budget.taken()), (&b"ou"[..], 100));
        drop(part);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_share_that_is_refused_keeps_what_it_had() {
        let budget = BodyBudget::new(100);
        let mut held = budget.share();
        assert!(held.take(70) && !held.take(31) && !held.take(usize::MAX));
        assert_eq!(budget.taken(), 70);
        assert!(held.take(30));
    }
}
