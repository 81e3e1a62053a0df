//! The pages of one sequence, in the order of its tokens.

use super::book::{PageTokens, Parent};
use super::pool::{PAGE_TOKENS, Shelf};

/// The pages that a sequence holds; dropping the table lets go of them. The first ones may be held by others too: nobody
/// writes into a page that is full.
#[derive(Debug)]
pub struct BlockTable {
    pages: Vec<u32>,
    home: Shelf,
    /// How many pages are known, and the block of the last one; nothing where pages are not to be shared.
    known: Option<(usize, Parent)>,
}

// --- impl BlockTable ---

impl BlockTable {
    pub(super) fn of(home: Shelf, pages: Vec<u32>, known: Option<(usize, Parent)>) -> Self {
        Self { pages, home, known }
    }

    /// Returns the pages, first tokens first.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Returns how many tokens fit.
    pub fn tokens(&self) -> usize {
        self.pages.len() * PAGE_TOKENS
    }

    /// Returns how many tokens are known to be in the pages; nothing where pages are not to be shared.
    pub fn known_tokens(&self) -> Option<usize> {
        self.known.map(|(pages, _)| pages * PAGE_TOKENS)
    }

    /// Makes the next full page known, so that others who begin so may share it.
    pub fn learn(&mut self, tokens: &PageTokens) {
        let Some((at, parent)) = self.known else { return };
        let Some(page) = self.pages.get_mut(at) else { return };
        let (held, block) = self.home.open().learn(*page, parent, tokens);
        *page = held;
        self.known = Some((at + 1, block));
    }

    /// Takes more pages, so that `tokens` fit in all; returns whether there were enough.
    pub fn grow(&mut self, tokens: usize) -> bool {
        let missing = tokens.div_ceil(PAGE_TOKENS).saturating_sub(self.pages.len());
        self.home.open().take(missing, &mut self.pages)
    }
}

impl Drop for BlockTable {
    fn drop(&mut self) {
        self.home.open().put(&mut self.pages);
    }
}
