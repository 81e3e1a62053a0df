//! Blocks that models share: text (tokenisers, chat templates, streamed text), what plans check in requests, and
//! transformer layers.
//!
//! This crate knows no model: every size comes from the caller. It refuses to know engines and where weights come
//! from.
//!
//! ```
//! use mstar_blocks::{GgufVocabulary, TextStream, Tokenizer};
//! let tokens = ["<|end|>", "H", "i", "Ã", "©"].map(String::from);
//! let vocabulary = GgufVocabulary { tokens: &tokens, kinds: &[3, 1, 1, 1, 1], merges: &[], pre: "gpt-2" };
//! let tokenizer = std::sync::Arc::new(Tokenizer::from_gguf(vocabulary).unwrap());
//! assert_eq!(tokenizer.encode("Hi<|end|>").unwrap(), [1, 2, 0]);
//! // The two bytes of "é" come as two tokens, and as one character.
//! let mut text = TextStream::new(tokenizer, vec![]);
//! assert_eq!((text.push(3).text.as_str(), text.push(4).text.as_str()), ("", "é"));
//! ```

mod chat;
pub mod layers;
mod request_checks;
mod text_stream;
mod tokenizer;
pub mod verify;

pub use chat::{ChatError, ChatTemplate};
pub use request_checks::{MediaParts, SamplingBounds, check_sampling, conversation};
pub use text_stream::{Piece, TextStream};
pub use tokenizer::{GgufVocabulary, Tokenizer, TokenizerError};
