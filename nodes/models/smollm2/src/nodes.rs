//! The two nodes: a file each, with their ops.

mod llm;
mod prompt;

use std::sync::Arc;

use mstar_blocks::{GgufVocabulary, Tokenizer};
use mstar_contract::LoadError;
use mstar_weights::{MetaValue, WeightFile};

pub(crate) use llm::DECODE;
pub use llm::Llm;
pub use prompt::Prompt;

/// The weight package of both.
const PACKAGE: &str = "smollm2";

/// Turns what went wrong while a component loaded into its error.
fn broken<E: ToString>(component: &'static str) -> impl Fn(E) -> LoadError {
    move |error| LoadError { component: component.into(), message: error.to_string() }
}

/// Builds the tokeniser that the file describes.
pub(crate) fn tokenizer(file: &WeightFile) -> Result<Arc<Tokenizer>, String> {
    let missing = |key: &str| format!("setting {key} is missing or not a list");
    let texts = |key: &str| file.meta(key).and_then(MetaValue::as_strs).ok_or_else(|| missing(key));
    let kinds = "tokenizer.ggml.token_type";
    let vocabulary = GgufVocabulary {
        tokens: texts("tokenizer.ggml.tokens")?,
        merges: texts("tokenizer.ggml.merges")?,
        kinds: file.meta(kinds).and_then(MetaValue::as_ints).ok_or_else(|| missing(kinds))?,
        pre: file.meta("tokenizer.ggml.pre").and_then(MetaValue::as_str).unwrap_or("default"),
    };
    Ok(Arc::new(Tokenizer::from_gguf(vocabulary).map_err(|e| e.to_string())?))
}
