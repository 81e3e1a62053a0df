//! Engines: the machinery around what model authors write.
//!
//! - [`StatelessEngine`] wraps a [`Compute`](mstar_contract::Compute): batches, and panics that stay with their row.
//! - [`PagedEngine`] wraps a [`Decoder`](mstar_contract::Decoder): KV pages, chunks of prompts, sampling, text.
//! - [`sample`] chooses tokens.
//! - [`kv`] owns the pages of KV sequences.
//! - [`fake`] has scripted components and the model `fake`, for tests of everything around engines.
//!
//! This crate refuses to know what a model computes, which graph a step belongs to, and who sends rows. It runs on a
//! rank's compute thread and never waits for anything.
//!
//! ```
//! use mstar_engines::kv::PagePool;
//! let pool = PagePool::new(4);
//! let table = pool.reserve(20).expect("four pages of 16 tokens are free");
//! assert_eq!((table.tokens(), pool.used()), (32, 2));
//! drop(table);
//! assert_eq!(pool.free(), 4);
//! ```

pub mod fake;
mod isolate;
pub mod kv;
mod paged;
mod random;
pub mod sample;
mod sequence;
mod stateless;
#[cfg(test)]
mod testing;

pub use paged::{KvBudget, PagedEngine, PagedLimits, page_bytes};
pub use stateless::StatelessEngine;
