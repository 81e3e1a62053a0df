//! Faults on demand: by what a row says, or at random from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mstar_contract::{In, Row, RowError, Value};

use crate::random;

/// An op panics on every row that has this word in one of its texts.
pub const PANIC_WORD: &str = "[panic]";

/// An op fails every row that has this word in one of its texts.
pub const ERROR_WORD: &str = "[error]";

/// How far a random fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The op panics on a batch; the engine catches it and runs the rows one by one.
    Op,
    /// The engine itself panics: its node is lost.
    Node,
}

/// Random faults, shared by all fakes that draw from it: the same seed gives the same faults for the same batches.
#[derive(Debug)]
pub struct FaultPlan {
    seed: u64,
    reach: Reach,
    one_in: u64,
    batches: AtomicU64,
    left: AtomicU32,
    struck: AtomicU32,
}

// --- impl FaultPlan ---

impl FaultPlan {
    /// Returns a plan without random faults.
    pub fn none() -> Arc<Self> {
        Self::new(0, Reach::Op, 1, 0)
    }

    /// Returns a plan that strikes about one batch in `one_in`, at most `at_most` times.
    pub fn new(seed: u64, reach: Reach, one_in: u64, at_most: u32) -> Arc<Self> {
        Arc::new(Self {
            seed,
            reach,
            one_in: one_in.max(1),
            batches: AtomicU64::new(0),
            left: AtomicU32::new(at_most),
            struck: AtomicU32::new(0),
        })
    }

    /// Returns how often it has struck.
    pub fn struck(&self) -> u32 {
        self.struck.load(Ordering::Relaxed)
    }

    /// Panics when the next batch is one to strike and `reach` is the plan's.
    pub fn strike(&self, reach: Reach) {
        if reach != self.reach || self.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        let batch = self.batches.fetch_add(1, Ordering::Relaxed);
        if !random::bits(self.seed, batch).is_multiple_of(self.one_in) {
            return;
        }
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_ok() {
            let count = self.struck.fetch_add(1, Ordering::Relaxed) + 1;
            panic!("injected fault {count} in batch {batch}");
        }
    }
}

/// Does what a row's words demand.
pub(super) fn provoke(row: &Row) -> Result<(), RowError> {
    if says(row, PANIC_WORD) {
        panic!("the row says {PANIC_WORD}");
    }
    if says(row, ERROR_WORD) {
        return Err(RowError::Internal(format!("the row says {ERROR_WORD}")));
    }
    Ok(())
}

fn says(row: &Row, word: &str) -> bool {
    let in_value = |value: &Value| value.as_text().is_some_and(|text| text.contains(word));
    row.inputs.iter().any(|(_, input)| match input {
        In::One(value) => in_value(value),
        In::All(values) => values.iter().any(in_value),
        In::Chunk(chunk) => chunk.items.iter().any(in_value),
        In::Signal => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::guard;

    #[test]
    fn a_plan_strikes_the_same_batches_for_the_same_seed_and_then_rests() {
        let run = |seed| {
            let plan = FaultPlan::new(seed, Reach::Op, 4, 3);
            let hits: Vec<bool> = (0..100).map(|_| guard(|| plan.strike(Reach::Op)).is_err()).collect();
            assert_eq!(plan.struck(), 3);
            hits
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert_eq!(run(7).iter().filter(|&&hit| hit).count(), 3);
    }

    #[test]
    fn a_plan_strikes_only_within_its_reach() {
        let plan = FaultPlan::new(1, Reach::Node, 1, 5);
        plan.strike(Reach::Op);
        assert_eq!(plan.struck(), 0);
        assert!(guard(|| plan.strike(Reach::Node)).is_err());
    }
}
