//! Whose sequences an engine keeps.

use std::collections::BTreeMap;

use mstar_contract::{RequestKey, Row};

/// Names a sequence: one request's attempt may have several, told apart by label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SequenceKey {
    request: RequestKey,
    label: u8,
}

/// The sequences of all requests.
#[derive(Debug)]
pub(crate) struct Sequences<S>(BTreeMap<SequenceKey, S>);

// --- impl SequenceKey ---

impl SequenceKey {
    /// Returns the sequence that a row goes on with.
    pub(crate) fn of(row: &Row) -> Self {
        Self { request: row.key, label: row.params.label }
    }

    /// Returns whether it belongs to the request's attempt or an earlier one.
    pub(crate) fn retired_by(self, key: RequestKey) -> bool {
        self.request.id == key.id && self.request.attempt <= key.attempt
    }
}

// --- impl Sequences ---

impl<S> Default for Sequences<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S> Sequences<S> {
    pub(crate) fn get(&self, key: SequenceKey) -> Option<&S> {
        self.0.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: SequenceKey) -> Option<&mut S> {
        self.0.get_mut(&key)
    }

    pub(crate) fn insert(&mut self, key: SequenceKey, sequence: S) {
        self.0.insert(key, sequence);
    }

    pub(crate) fn remove(&mut self, key: SequenceKey) -> Option<S> {
        self.0.remove(&key)
    }

    /// Forgets a request's attempt and all earlier ones.
    pub(crate) fn retire(&mut self, key: RequestKey) {
        let first = SequenceKey { request: RequestKey { id: key.id, attempt: 0 }, label: 0 };
        let last = SequenceKey { request: key, label: u8::MAX };
        let gone: Vec<SequenceKey> = self.0.range(first..=last).map(|(&key, _)| key).collect();
        for key in gone {
            self.0.remove(&key);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SequenceKey, &S)> {
        self.0.iter().map(|(&key, sequence)| (key, sequence))
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
