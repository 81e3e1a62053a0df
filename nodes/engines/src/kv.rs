//! Where KV sequences live: pages of a fixed number of tokens, and the table of pages that each sequence holds. Sequences
//! that begin with the same tokens share pages.

mod book;
mod pool;
mod table;

pub use pool::{Beginning, PAGE_TOKENS, PagePool};
pub use table::BlockTable;
