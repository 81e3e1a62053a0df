//! What a sequence has seen, for penalties.

use std::collections::HashMap;

/// The tokens of a sequence's prompt and output.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// How often each token was sampled; zero for one that only the prompt has.
    counts: HashMap<u32, u32>,
}

// --- impl History ---

impl History {
    /// Adds tokens of the prompt.
    pub fn read(&mut self, tokens: &[u32]) {
        for &token in tokens {
            self.counts.entry(token).or_default();
        }
    }

    /// Adds a sampled token.
    pub fn wrote(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
    }

    /// Returns every token with how often it was sampled, in no particular order.
    pub(super) fn seen(&self) -> impl Iterator<Item = (u32, u32)> {
        self.counts.iter().map(|(&token, &count)| (token, count))
    }
}
