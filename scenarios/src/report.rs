//! What a story found.

use serde_json::{Value, json};

/// What a story found: its figures, and the invariants that did not hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    figures: Value,
    broken: Vec<String>,
}

// --- impl Report ---

impl Report {
    /// Returns a report of these figures, a JSON object, in which everything holds so far.
    pub fn new(figures: Value) -> Self {
        Self { figures, broken: Vec::new() }
    }

    /// Notes an invariant: where it does not hold, `told` says what was found instead.
    pub fn must(&mut self, holds: bool, told: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(told());
        }
    }

    /// Returns whether every invariant held.
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// Returns the figures.
    pub fn figures(&self) -> &Value {
        &self.figures
    }

    /// Returns the report as one JSON document.
    pub fn document(&self) -> Value {
        let mut document = self.figures.clone();
        document["broken"] = json!(self.broken);
        document
    }
}
