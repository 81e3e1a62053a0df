//! The pages of a rank's KV memory. Pages are handed out as [`BlockTable`]s: tables cannot be cloned, and nothing but
//! dropping one lets go of its pages, so that no page is freed twice or lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BlockTable;
use super::book::{Book, Parent};
pub use mstar_kernels::ops::PAGE_TOKENS;

/// All pages of one KV memory.
#[derive(Debug)]
pub struct PagePool {
    shelf: Shelf,
    total: usize,
}

/// The book of pages, shared with the tables.
#[derive(Clone, Debug)]
pub(super) struct Shelf(Arc<Mutex<Book>>);

/// The beginning of a sequence, which may be in known pages.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// Whose sequence it is: different tenants share nothing.
    pub tenant: u64,
    /// Its first tokens, all that are there yet.
    pub tokens: &'a [u32],
}

// --- impl PagePool ---

impl PagePool {
    /// Returns a pool of so many free pages.
    pub fn new(pages: usize) -> Self {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        Self { shelf: Shelf(Arc::new(Mutex::new(Book::new(pages)))), total: pages as usize }
    }

    /// Returns how many pages so many tokens take.
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_TOKENS)
    }

    /// Takes pages for so many tokens, or none at all when there are too few. They are shared with nobody.
    pub fn reserve(&self, tokens: usize) -> Option<BlockTable> {
        let mut pages = Vec::new();
        let taken = self.shelf.open().take(Self::pages_for(tokens), &mut pages);
        taken.then(|| BlockTable::of(self.shelf.clone(), pages, None))
    }

    /// Takes pages for so many tokens, or none at all when there are too few, for a sequence that begins with these:
    /// known pages first, so that fewer tokens need computing. At least the last token is left to compute.
    pub fn begin(&self, beginning: Beginning<'_>, tokens: usize) -> Option<BlockTable> {
        let mut book = self.shelf.open();
        let (mut pages, last) = find(&book, beginning);
        let more = Self::pages_for(tokens).saturating_sub(pages.len());
        if !book.fits(&pages, more) {
            return None;
        }
        book.hold(&pages);
        let known = pages.len();
        book.take(more, &mut pages);
        drop(book);
        Some(BlockTable::of(self.shelf.clone(), pages, Some((known, last))))
    }

    /// Returns whether [`Self::begin`] would find enough pages.
    pub fn fits(&self, beginning: Beginning<'_>, tokens: usize) -> bool {
        let book = self.shelf.open();
        let (known, _) = find(&book, beginning);
        book.fits(&known, Self::pages_for(tokens).saturating_sub(known.len()))
    }

    /// Forgets what pages hold: who begins after this computes everything.
    pub fn forget(&self) {
        self.shelf.open().forget();
    }

    /// Returns how many pages nobody holds.
    pub fn free(&self) -> usize {
        self.shelf.open().available()
    }

    /// Returns how many of the free pages are known to hold the beginning of something.
    pub fn cached(&self) -> usize {
        self.shelf.open().idle()
    }

    /// Returns how many pages sequences hold.
    pub fn used(&self) -> usize {
        self.total - self.free()
    }

    /// Returns how many pages there are.
    pub fn total(&self) -> usize {
        self.total
    }
}

fn find(book: &Book, beginning: Beginning<'_>) -> (Vec<u32>, Parent) {
    let most = beginning.tokens.len().saturating_sub(1) / PAGE_TOKENS;
    book.find(Parent::Start(beginning.tenant), beginning.tokens, most)
}

// --- impl Shelf ---

impl Shelf {
    pub(super) fn open(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
