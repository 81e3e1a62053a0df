//! How far a sequence has come and how far it may go: plain numbers, the same live and when a journal is replayed.

use mstar_contract::RowError;

/// The extent of one sequence, in tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Most tokens that any sequence can hold.
    context: usize,
    /// Most tokens to sample where nobody names a bound.
    unbounded: usize,
    /// Bound that the request sets on sampled tokens.
    asked: Option<u32>,
    /// Tokens that it holds or is about to append.
    held: usize,
    /// Tokens sampled.
    sampled: usize,
    /// Most tokens that it may sample.
    bound: usize,
    /// Most tokens that it may come to hold.
    capacity: usize,
    /// The token sampled last, while it was not fed back.
    last: Option<u32>,
}

/// What tokens are to their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// Something to read.
    Prompt,
    /// The token sampled last.
    Feedback,
}

// --- impl Extent ---

impl Extent {
    /// Returns the extent of an empty sequence where `pages` tokens fit into all pages.
    pub(super) fn new(context: usize, pages: usize, asked: Option<u32>) -> Self {
        let unbounded = context.min(pages);
        Self { context, unbounded, asked, held: 0, sampled: 0, bound: 0, capacity: 0, last: None }
    }

    /// Appends tokens: a prompt, after which at most `max_new` tokens may be sampled, or the token sampled last.
    pub(super) fn bring(&mut self, tokens: &[u32], max_new: Option<u32>) -> Result<Brought, RowError> {
        if tokens.is_empty() {
            return Err(RowError::Internal("a step brings no tokens".to_owned()));
        }
        if self.last.is_some_and(|last| tokens == [last]) {
            if self.held + 1 > self.capacity {
                return Err(RowError::Internal(format!("the sequence is full with {} tokens", self.held)));
            }
            self.held += 1;
            self.last = None;
            return Ok(Brought::Feedback);
        }
        let first = self.held == 0;
        self.held += tokens.len();
        self.last = None;
        if self.held > self.context {
            let Self { held, context, .. } = self;
            return Err(RowError::TooLarge(format!("{held} tokens of prompt exceed the context of {context}")));
        }
        let asked = if first { self.asked.map_or(max_new, |a| Some(max_new.map_or(a, |m| m.min(a)))) } else { max_new };
        match asked {
            Some(more) => self.bound = self.sampled + more.max(1) as usize,
            None if first => self.bound = self.unbounded.saturating_sub(self.held).max(1),
            None => {}
        }
        self.capacity = (self.held + self.bound.saturating_sub(self.sampled)).min(self.context);
        Ok(Brought::Prompt)
    }

    /// Takes note of a sampled token.
    pub(super) fn wrote(&mut self, token: u32) {
        self.sampled += 1;
        self.last = Some(token);
    }

    /// Returns whether no token may be sampled after the last one.
    pub(super) fn exhausted(&self) -> bool {
        self.sampled >= self.bound || self.held + 1 > self.capacity
    }

    /// Returns the most tokens that it may come to hold.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_ends_the_sampling_and_sizes_the_reservation() {
        let mut extent = Extent::new(100, 1000, Some(3));
        assert_eq!(extent.bring(&[1, 2, 3], Some(7)).unwrap(), Brought::Prompt);
        assert_eq!(extent.capacity(), 6);
        for token in 10..12 {
            extent.wrote(token);
            assert!(!extent.exhausted());
            assert_eq!(extent.bring(&[token], None).unwrap(), Brought::Feedback);
        }
        extent.wrote(12);
        assert!(extent.exhausted());
    }

    #[test]
    fn the_context_ends_the_sampling_too() {
        let mut extent = Extent::new(4, 1000, None);
        extent.bring(&[1, 2, 3], Some(10)).unwrap();
        extent.wrote(9);
        assert!(!extent.exhausted());
        extent.bring(&[9], None).unwrap();
        extent.wrote(9);
        assert!(extent.exhausted());
        assert!(matches!(extent.bring(&[9], None), Err(RowError::Internal(_))));
        assert!(matches!(extent.bring(&[7], None), Err(RowError::TooLarge(_))));
    }

    #[test]
    fn a_sequence_without_bound_gets_what_context_and_pages_allow() {
        let mut extent = Extent::new(4096, 64, None);
        extent.bring(&[1; 10], None).unwrap();
        assert_eq!(extent.capacity(), 64);
    }

    #[test]
    fn a_second_prompt_bounds_anew() {
        let mut extent = Extent::new(100, 1000, Some(2));
        extent.bring(&[1], None).unwrap();
        extent.wrote(5);
        assert_eq!(extent.bring(&[6, 7], Some(4)).unwrap(), Brought::Prompt);
        assert_eq!(extent.capacity(), 7);
        assert!(!extent.exhausted());
    }
}
