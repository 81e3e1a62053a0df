//! Who waits for pages first is served first: while it waits, no other sequence begins, however small.

use std::cell::Cell;

use mstar_contract::RequestKey;

use crate::sequence::SequenceKey;

/// How many others are turned away for one that does not come back, before it is given up.
const PATIENCE: u32 = 256;

/// Remembers who waits first.
#[derive(Debug, Default)]
pub(super) struct Turnstile(Cell<Option<(SequenceKey, u32)>>);

// --- impl Turnstile ---

impl Turnstile {
    /// Returns whether a sequence may begin, given whether there are pages for it.
    pub(super) fn admits(&self, key: SequenceKey, fits: bool) -> bool {
        match self.0.get() {
            Some((first, patience)) if first != key => {
                self.0.set((patience > 1).then_some((first, patience - 1)));
                false
            }
            _ if fits => true,
            _ => {
                self.0.set(Some((key, PATIENCE)));
                false
            }
        }
    }

    /// Lets the next one wait first: this one has begun.
    pub(super) fn passed(&self, key: SequenceKey) {
        self.forget(|first| first == key);
    }

    /// Lets the next one wait first when this request has ended.
    pub(super) fn retire(&self, key: RequestKey) {
        self.forget(|first| first.retired_by(key));
    }

    /// Forgets who waits.
    pub(super) fn clear(&self) {
        self.0.set(None);
    }

    fn forget(&self, gone: impl Fn(SequenceKey) -> bool) {
        if self.0.get().is_some_and(|(first, _)| gone(first)) {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::text_row;

    fn key(id: u64) -> SequenceKey {
        SequenceKey::of(&text_row(id, "prompt", "x"))
    }

    #[test]
    fn whoever_waits_first_goes_first() {
        let turnstile = Turnstile::default();
        assert!(turnstile.admits(key(1), true));
        assert!(!turnstile.admits(key(2), false));
        assert!(!turnstile.admits(key(3), true));
        assert!(turnstile.admits(key(2), true));
        assert!(!turnstile.admits(key(3), true));
        turnstile.passed(key(2));
        assert!(turnstile.admits(key(3), true));
    }

    #[test]
    fn one_that_is_gone_holds_nobody_up() {
        let turnstile = Turnstile::default();
        turnstile.admits(key(2), false);
        turnstile.retire(RequestKey { id: 2, attempt: 0 });
        assert!(turnstile.admits(key(3), true));
        turnstile.admits(key(2), false);
        let turned_away = (0..).take_while(|_| !turnstile.admits(key(3), true)).count();
        assert_eq!(turned_away, PATIENCE as usize);
    }
}
