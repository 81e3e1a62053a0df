//! SmolLM2: a small Llama that answers a conversation, from one GGUF file.
//!
//! Two components (`smollm2.prompt` writes the conversation as tokens, `smollm2.llm` goes on from there) and one walk
//! over them, `chat`, which composites include through [`chat_fragment`]. The network follows Hugging Face's
//! `modeling_llama.py`; names and settings in the file are llama.cpp's.
//!
//! This crate refuses to know pages, sampling, batching and HTTP.
//!
//! ```
//! use mstar_contract::Model;
//! let model = mstar_smollm2::SmolLm2::new();
//! assert_eq!(model.id(), "smollm2");
//! assert!(model.graph().find_walk("chat").is_some());
//! ```

mod config;
mod model;
mod network;
mod nodes;
mod plan;
pub mod verify;

pub use config::Config;
pub use model::{SmolLm2, chat_fragment, components};
pub use network::{Network, Tap};
pub use nodes::{Llm, Prompt};
