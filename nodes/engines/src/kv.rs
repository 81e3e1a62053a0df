//! Where KV sequences live: pages of a fixed number of tokens, and the table of pages that each sequence holds.

mod pool;
mod table;

pub use pool::{PAGE_TOKENS, PagePool};
pub use table::BlockTable;
