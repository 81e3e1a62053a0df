//! The pages of a rank's KV memory. A page is either free or in exactly one [`BlockTable`]: tables cannot be cloned,
//! and nothing but dropping one puts its pages back, so that no page is freed twice or lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BlockTable;
pub use mstar_kernels::ops::PAGE_TOKENS;

/// All pages of one KV memory.
#[derive(Debug)]
pub struct PagePool {
    free: FreePages,
    total: usize,
}

/// The pages that no sequence holds.
#[derive(Clone, Debug)]
pub(super) struct FreePages(Arc<Mutex<Vec<u32>>>);

// --- impl PagePool ---

impl PagePool {
    /// Returns a pool of so many free pages.
    pub fn new(pages: usize) -> Self {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        Self { free: FreePages(Arc::new(Mutex::new((0..pages).rev().collect()))), total: pages as usize }
    }

    /// Returns how many pages so many tokens take.
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_TOKENS)
    }

    /// Takes pages for so many tokens, or none at all when there are too few.
    pub fn reserve(&self, tokens: usize) -> Option<BlockTable> {
        let mut table = BlockTable::empty(self.free.clone());
        table.grow(tokens).then_some(table)
    }

    /// Returns how many pages are free.
    pub fn free(&self) -> usize {
        self.free.list().len()
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

// --- impl FreePages ---

impl FreePages {
    /// Moves `count` pages to `pages`, or none when there are too few.
    pub(super) fn take(&self, count: usize, pages: &mut Vec<u32>) -> bool {
        let mut free = self.list();
        let Some(rest) = free.len().checked_sub(count) else { return false };
        pages.extend(free.drain(rest..).rev());
        true
    }

    /// Takes pages back.
    pub(super) fn put(&self, pages: &mut Vec<u32>) {
        self.list().extend(pages.drain(..).rev());
    }

    fn list(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reservation_takes_all_its_pages_or_none() {
        let pool = PagePool::new(4);
        let first = pool.reserve(33).unwrap();
        assert_eq!(first.pages(), [0, 1, 2]);
        assert!(pool.reserve(17).is_none());
        assert_eq!((pool.free(), pool.used()), (1, 3));
        drop(first);
        assert_eq!(pool.reserve(64).unwrap().pages().len(), 4);
    }

    proptest! {
        #[test]
        fn no_page_is_in_two_tables_and_all_come_back(wanted in proptest::collection::vec((1usize..90, 0usize..5), 1..60)) {
            let pool = PagePool::new(20);
            let mut tables: Vec<BlockTable> = Vec::new();
            for (tokens, at) in wanted {
                match pool.reserve(tokens) {
                    Some(table) => tables.push(table),
                    None if at < tables.len() => drop(tables.swap_remove(at)),
                    None => {
                        if let Some(table) = tables.last_mut() {
                            let (before, free) = (table.pages().len(), pool.free());
                            let grown = table.grow(table.tokens() + tokens);
                            prop_assert_eq!(grown, PagePool::pages_for(tokens) <= free);
                            prop_assert!(grown || table.pages().len() == before);
                        }
                    }
                }
                let held: Vec<u32> = tables.iter().flat_map(|t| t.pages().iter().copied()).collect();
                prop_assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), held.len());
                prop_assert_eq!(held.len(), pool.used());
            }
            drop(tables);
            prop_assert_eq!(pool.free(), 20);
        }
    }
}
