//! The pages of one sequence, in the order of its tokens.

use super::pool::{FreePages, PAGE_TOKENS};

/// The pages that a sequence holds; dropping the table frees them.
#[derive(Debug)]
pub struct BlockTable {
    pages: Vec<u32>,
    home: FreePages,
}

// --- impl BlockTable ---

impl BlockTable {
    pub(super) fn empty(home: FreePages) -> Self {
        Self { pages: Vec::new(), home }
    }

    /// Returns the pages, first tokens first.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Returns how many tokens fit.
    pub fn tokens(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    /// Takes more pages, so that `tokens` fit in all; returns whether there were enough.
    pub fn grow(&mut self, tokens: usize) -> bool {
        let missing = tokens.div_ceil(PAGE_TOKENS).saturating_sub(self.pages.len());
        self.home.take(missing, &mut self.pages)
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        self.home.put(&mut self.pages);
    }
}
