//! The engine around [`Decoder`]: pages, sequences, chunks of prompts, sampling and text.
//!
//! A sequence reserves, when it begins, the pages of its prompt and of all tokens it may sample; a row that finds too
//! few waits, in turn. So nothing that runs ever competes for a page, and everything that runs ends. The price is room
//! that may stay unused. This holds as long as a request has one sequence at a time: one that begins a second label
//! while it holds the first waits with pages in hand.
//!
//! What full pages hold is known by their tokens and those before, also when their sequence has ended: one that begins
//! so holds them too and computes the rest. Pages that nobody holds are given away when others are short.
//!
//! All ops only append tokens, so their rows share passes: rows that append one token go first, prompts get what is
//! left of the pass ([`division`]), and no more than those in the middle of their replies can bear ([`pace`]).

mod division;
mod extent;
mod opening;
mod output;
mod pace;
mod pass;
mod sequence;
mod turnstile;

use std::time::Duration;

use mstar_contract::{
    Decoder, Engine, EngineUsage, ExecuteCx, KvGeometry, OpDecl, Precision, RequestKey, Row, RowError, RowProgress,
};
use mstar_kernels::gpu::Captures;
use mstar_kernels::ops::{KvPages, KvSize};
use mstar_kernels::{Cx, DType, KernelError};

use crate::kv::{Beginning, BlockTable, PAGE_TOKENS, PagePool};
use crate::sequence::{SequenceKey, Sequences};
use extent::Extent;
use opening::{Opening, PagedOps};
use pace::{Load, Pace};
use sequence::{Sequence, Work};
use turnstile::Turnstile;

/// What a paged engine may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedLimits {
    /// Memory for keys and values.
    pub budget: KvBudget,
    /// Most tokens of all rows in one pass.
    pub max_batch_tokens: usize,
    /// Most tokens of one row in one pass; a longer prompt takes several.
    pub prefill_chunk: usize,
}

/// Memory for keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBudget {
    /// So many pages.
    Pages(usize),
    /// As many pages as fit into so many bytes.
    Bytes(u64),
}

/// Runs a component with paged KV.
///
/// A batch that panics or fails is run again row by row; a row that does so alone twice fails, and its sequence is
/// forgotten.
pub struct PagedEngine {
    decoder: Box<dyn Decoder>,
    ops: PagedOps,
    limits: PagedLimits,
    context: usize,
    pool: PagePool,
    pages: KvPages,
    /// Steps of replies that a GPU runs as a whole.
    captures: Option<Captures>,
    sequences: Sequences<Sequence>,
    turnstile: Turnstile,
    pace: Pace,
    /// Tokens that sequences began with, and those of them that were in known pages.
    prompt_tokens: u64,
    reused_tokens: u64,
    /// Passes so far.
    passes: u64,
    /// What the last execution appended, when it was one pass and nothing else.
    last: Option<Load>,
}

// --- impl PagedLimits ---

impl Default for PagedLimits {
    fn default() -> Self {
        Self { budget: KvBudget::Pages(1024), max_batch_tokens: 512, prefill_chunk: 256 }
    }
}

// --- impl KvBudget ---

impl KvBudget {
    /// Returns how many pages there are for a cache of this shape: none, if the bytes are too few for one.
    pub fn pages(self, geometry: &KvGeometry) -> usize {
        match self {
            Self::Pages(pages) => pages,
            Self::Bytes(bytes) => {
                let pages = bytes / page_bytes(geometry).max(1);
                usize::try_from(pages).unwrap_or(usize::MAX).min(u32::MAX as usize)
            }
        }
    }
}

/// Returns the bytes of a page of a cache of this shape.
pub fn page_bytes(geometry: &KvGeometry) -> u64 {
    // Values are stored in whole vectors of sixteen, keys are not.
    let widths = geometry.head_dim + geometry.head_dim.next_multiple_of(16);
    let number = dtype(geometry.precision).size();
    (geometry.layers * geometry.kv_heads * widths * PAGE_TOKENS * number) as u64
}

fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 | Precision::Q8 | Precision::Q4 => DType::BF16,
    }
}

// --- impl PagedEngine ---

impl PagedEngine {
    /// Returns an engine around a component's decoder and allocates its pages.
    pub fn new(decoder: Box<dyn Decoder>, ops: &[OpDecl], limits: PagedLimits, cx: &Cx) -> Result<Self, KernelError> {
        let geometry = decoder.geometry();
        let pages = limits.budget.pages(&geometry);
        let size = KvSize { layers: geometry.layers, pages, heads: geometry.kv_heads, head_dim: geometry.head_dim };
        Ok(Self {
            ops: PagedOps::new(ops),
            context: geometry.context,
            pool: PagePool::new(pages),
            pages: KvPages::on(cx, size, dtype(geometry.precision))?,
            captures: cx.gpu().map(Captures::new),
            sequences: Sequences::default(),
            turnstile: Turnstile::default(),
            pace: Pace::default(),
            prompt_tokens: 0,
            reused_tokens: 0,
            passes: 0,
            last: None,
            decoder,
            limits,
        })
    }

    /// Returns whether a row is under way: a part of it was done, or could not be for want of budget.
    fn under_way(&self, row: &Row) -> bool {
        let sequence = self.sequences.get(SequenceKey::of(row));
        sequence.and_then(|sequence| sequence.work.as_ref()).is_some_and(|work| work.id == row.work)
    }

    /// Takes up a row that is not under way; returns whether there were pages for it.
    fn take_up(&mut self, row: &Row, cx: &Cx) -> Result<bool, RowError> {
        let key = SequenceKey::of(row);
        let opening = Opening::of(&*self.decoder, &self.ops, row)?;
        let mut work = Work { id: row.work, tokens: opening.tokens(), done: 0 };
        if opening.begins {
            let Some(table) = self.reserve(&opening, &work.tokens, row)? else { return Ok(false) };
            let known = table.known_tokens().unwrap_or(0);
            self.prompt_tokens += work.tokens.len() as u64;
            self.reused_tokens += known as u64;
            work.done = known;
            self.sequences.insert(key, Sequence::new(row, &*self.decoder, self.extent(row), table));
        }
        let sequence = self.sequences.get_mut(key).ok_or_else(|| {
            RowError::Internal("the sequence is lost and there is no journal to rebuild it from".to_owned())
        })?;
        if sequence.work.is_some() {
            return Err(RowError::Internal("another step of the sequence is under way".to_owned()));
        }
        let context = opening.parts.iter().rev().find_map(|part| part.prompt.context.as_ref());
        if let (Some(context), None) = (context, &sequence.cross) {
            sequence.cross = Some(self.decoder.cross(cx, &context.on(cx)?)?);
            // That took its time too: the next one tells nothing of a pass.
            self.last = None;
        }
        sequence.take_up(work, opening.parts, &*self.decoder)?;
        Ok(true)
    }

    /// Takes pages for a sequence that begins anew, in the place of the one there was: those that are known to hold how
    /// it begins, and free ones. Returns nothing when there are too few, or others wait first.
    fn reserve(&mut self, opening: &Opening, tokens: &[u32], row: &Row) -> Result<Option<BlockTable>, RowError> {
        let (key, capacity) = (SequenceKey::of(row), self.demand(opening, row)?);
        self.sequences.remove(key);
        let beginning = Beginning { tenant: row.request().tenant.0, tokens };
        let fits = match opening.plain() {
            true => self.pool.fits(beginning, capacity),
            false => PagePool::pages_for(capacity) <= self.pool.free(),
        };
        if !self.turnstile.admits(key, fits) {
            return Ok(None);
        }
        self.turnstile.passed(key);
        // Where tokens are not all that counts, pages are nobody else's.
        Ok(if opening.plain() { self.pool.begin(beginning, capacity) } else { self.pool.reserve(capacity) })
    }

    fn extent(&self, row: &Row) -> Extent {
        let asked = self.decoder.sampling(row.request()).max_tokens;
        Extent::new(self.context, self.pool.total() * PAGE_TOKENS, asked)
    }

    /// Returns how many tokens a sequence that begins may come to hold, or why it can never fit.
    fn demand(&self, opening: &Opening, row: &Row) -> Result<usize, RowError> {
        let mut extent = self.extent(row);
        for part in &opening.parts {
            extent.bring(&part.prompt.tokens, part.prompt.max_new)?;
            for (i, &token) in part.sampled.iter().enumerate() {
                if i > 0 {
                    extent.bring(&part.sampled[i - 1..i], None)?;
                }
                extent.wrote(token);
            }
        }
        let (tokens, total) = (extent.capacity(), self.pool.total());
        let pages = PagePool::pages_for(tokens);
        if pages <= total {
            return Ok(tokens);
        }
        Err(RowError::TooLarge(format!(
            "prompt and reply may come to {tokens} tokens in {pages} KV pages; there are {total} in all"
        )))
    }
}

impl Engine for PagedEngine {
    fn execute(&mut self, rows: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress> {
        self.run_batch(rows, cx.cx)
    }

    fn timed(&mut self, took: Duration) {
        if let Some(load) = self.last.take() {
            self.pace.note(load, took);
        }
    }

    fn retire(&mut self, key: RequestKey) {
        self.sequences.retire(key);
        self.turnstile.retire(key);
    }

    fn reset(&mut self) {
        self.sequences.clear();
        self.turnstile.clear();
        self.pool.forget();
    }

    fn usage(&self) -> EngineUsage {
        EngineUsage {
            kv_pages_used: self.pool.used(),
            kv_pages_cached: self.pool.cached(),
            kv_pages: self.pool.total(),
            sequences: self.sequences.len(),
            prompt_tokens: self.prompt_tokens,
            reused_tokens: self.reused_tokens,
        }
    }
}

#[cfg(test)]
mod tests;
