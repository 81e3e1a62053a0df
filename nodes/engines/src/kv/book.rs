//! What becomes of each page, without a lock. A page is *free*; or *held*, by one table or by several that begin with the
//! same tokens; or *idle*: nobody holds it, but it is known what it holds, and whoever begins so may have it again.
//!
//! A page that is known is a *block*: the tokens of one page after those of a parent block. The parent stands for all
//! tokens before, so the key (parent, tokens) says everything that the page's numbers depend on, and finding a page
//! compares the tokens themselves: no hash is trusted. A holder of a block holds its parents too and lets go of them
//! later, so the idle page let go of longest never has a child: throwing it out orphans nothing.

use std::collections::BTreeMap;

use super::PAGE_TOKENS;

/// Where a sequence begins. Sequences of different tenants share nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Parent {
    /// At the beginning, as this tenant.
    Start(u64),
    /// After this block.
    Block(u64),
}

/// The tokens of a page.
pub(super) type PageTokens = [u32; PAGE_TOKENS];

/// Every page.
#[derive(Debug)]
pub(super) struct Book {
    free: Vec<u32>,
    pages: Vec<Page>,
    blocks: BTreeMap<(Parent, PageTokens), u32>,
    /// Idle pages by when they were let go of.
    idle: BTreeMap<u64, u32>,
    /// Counts what was let go of.
    clock: u64,
    /// Names the next block; no name is used twice.
    next_block: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    holders: u32,
    block: Option<Block>,
    /// Its key in `idle`, while it is there.
    let_go: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    name: u64,
    parent: Parent,
    tokens: PageTokens,
}

// --- impl Book ---

impl Book {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            free: (0..pages).rev().collect(),
            pages: vec![Page::default(); pages as usize],
            blocks: BTreeMap::new(),
            idle: BTreeMap::new(),
            clock: 0,
            next_block: 0,
        }
    }

    /// Returns how many pages nobody holds.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Returns how many pages nobody holds of which it is known what they hold.
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Returns the known pages that hold the beginning of a sequence, as many as there are of at most `most`, and the
    /// last block.
    pub(super) fn find(&self, start: Parent, tokens: &[u32], most: usize) -> (Vec<u32>, Parent) {
        let (mut found, mut parent) = (Vec::new(), start);
        for tokens in tokens.as_chunks().0.iter().take(most) {
            let Some(&page) = self.blocks.get(&(parent, *tokens)) else { break };
            found.push(page);
            parent = Parent::Block(self.block(page).name);
        }
        (found, parent)
    }

    /// Returns whether pages can be taken while these known ones are held.
    pub(super) fn fits(&self, known: &[u32], more: usize) -> bool {
        let woken = known.iter().filter(|&&page| self.pages[page as usize].holders == 0).count();
        more <= self.available() - woken
    }

    /// Holds known pages.
    pub(super) fn hold(&mut self, known: &[u32]) {
        for &page in known {
            let page = &mut self.pages[page as usize];
            if page.holders == 0 {
                self.idle.remove(&page.let_go);
            }
            page.holders += 1;
        }
    }

    /// Moves pages that nobody holds to `pages`, or none when there are too few. Idle ones go last, those let go of
    /// longest first.
    pub(super) fn take(&mut self, count: usize, pages: &mut Vec<u32>) -> bool {
        if count > self.available() {
            return false;
        }
        for _ in 0..count {
            let page = self.free.pop().unwrap_or_else(|| self.evict());
            self.pages[page as usize].holders = 1;
            pages.push(page);
        }
        true
    }

    /// Lets go of a table's pages.
    pub(super) fn put(&mut self, pages: &mut Vec<u32>) {
        // Children first, so that they are thrown out before their parents.
        for number in pages.drain(..).rev() {
            let page = &mut self.pages[number as usize];
            page.holders -= 1;
            if page.holders > 0 {
                continue;
            }
            if page.block.is_some() {
                self.clock += 1;
                page.let_go = self.clock;
                self.idle.insert(self.clock, number);
            } else {
                self.free.push(number);
            }
        }
    }

    /// Makes a full page known that one table holds. Where another page is known to hold the same, the table gets that
    /// one for it: the numbers are the same. Returns the table's page and the block.
    pub(super) fn learn(&mut self, page: u32, parent: Parent, tokens: &PageTokens) -> (u32, Parent) {
        if let Some(&known) = self.blocks.get(&(parent, *tokens)) {
            if known != page {
                self.hold(&[known]);
                self.put(&mut vec![page]);
            }
            return (known, Parent::Block(self.block(known).name));
        }
        let name = self.next_block;
        self.next_block += 1;
        self.pages[page as usize].block = Some(Block { name, parent, tokens: *tokens });
        self.blocks.insert((parent, *tokens), page);
        (page, Parent::Block(name))
    }

    /// Knows nothing of any page any more.
    pub(super) fn forget(&mut self) {
        self.blocks.clear();
        self.pages.iter_mut().for_each(|page| page.block = None);
        self.free.extend(std::mem::take(&mut self.idle).into_values());
    }

    fn evict(&mut self) -> u32 {
        let (_, page) = self.idle.pop_first().expect("invariant: as many pages are there as are taken");
        let block = self.block(page);
        self.blocks.remove(&(block.parent, block.tokens));
        self.pages[page as usize].block = None;
        page
    }

    fn block(&self, page: u32) -> Block {
        self.pages[page as usize].block.expect("invariant: known pages have a block")
    }
}

#[cfg(test)]
impl Book {
    /// Checks counts and keys against who holds each page, and returns the pages that nobody holds.
    pub(super) fn audit(&self, holders: &BTreeMap<u32, usize>) -> Vec<u32> {
        for (number, page) in (0..).zip(&self.pages) {
            assert_eq!(page.holders as usize, holders.get(&number).copied().unwrap_or(0), "holders of {number}");
            let idle = self.idle.get(&page.let_go) == Some(&number);
            assert_eq!(idle, page.holders == 0 && page.block.is_some(), "{number} is idle");
            let Some(block) = page.block else { continue };
            assert_eq!(self.blocks.get(&(block.parent, block.tokens)), Some(&number), "{number} is known");
            if let (true, Parent::Block(parent)) = (idle, block.parent) {
                let parent = self.pages.iter().find(|page| page.block.is_some_and(|block| block.name == parent));
                let parent = parent.expect("the parent of a known page is known");
                assert!(
                    parent.holders > 0 || parent.let_go > page.let_go,
                    "the parent of {number} is thrown out first"
                );
            }
        }
        assert_eq!(self.blocks.len(), self.pages.iter().filter(|page| page.block.is_some()).count());
        self.free.iter().copied().chain(self.idle.values().copied()).collect()
    }
}
