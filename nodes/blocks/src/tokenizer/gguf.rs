//! A tokeniser from the settings of a GGUF file.

use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

use super::TokenizerError;

/// What a GGUF file says about its byte-level BPE vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct GgufVocabulary<'a> {
    /// `tokenizer.ggml.tokens`.
    pub tokens: &'a [String],
    /// `tokenizer.ggml.token_type`: 3 is a control token, 4 one that users added.
    pub kinds: &'a [i64],
    /// `tokenizer.ggml.merges`: pairs with a space between, likeliest first.
    pub merges: &'a [String],
    /// `tokenizer.ggml.pre`: how text is cut before merging.
    pub pre: &'a str,
}

const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

// --- impl GgufVocabulary ---

impl GgufVocabulary<'_> {
    pub(super) fn build(self) -> Result<tokenizers::Tokenizer, TokenizerError> {
        let vocabulary = (0u32..).zip(self.tokens).map(|(id, text)| (text.clone(), id));
        let merges = self.merges.iter().map(|merge| match merge.split_once(' ') {
            Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
            None => Err(TokenizerError(format!("merge {merge:?} is not a pair"))),
        });
        let merges = merges.collect::<Result<Vec<_>, _>>()?;
        let bpe = BPE::builder().vocab_and_merges(vocabulary.collect::<Vocab>(), merges);
        let mut tokenizer = tokenizers::Tokenizer::new(bpe.build()?);
        tokenizer.with_pre_tokenizer(Some(pre_tokenizer(self.pre)?));
        for (text, &kind) in self.tokens.iter().zip(self.kinds) {
            match kind {
                CONTROL => tokenizer.add_special_tokens([AddedToken::from(text.clone(), true)])?,
                USER_DEFINED => tokenizer.add_tokens([AddedToken::from(text.clone(), false).normalized(false)])?,
                _ => 0,
            };
        }
        Ok(tokenizer)
    }
}

/// Returns the cutter of this name; the names are llama.cpp's.
fn pre_tokenizer(name: &str) -> Result<PreTokenizerWrapper, TokenizerError> {
    let bytes = PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true));
    match name {
        "gpt-2" | "default" => Ok(bytes),
        // Digits stand alone; a space before them does not join them.
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => {
            Ok(PreTokenizerWrapper::Sequence(Sequence::new(vec![Digits::new(true).into(), bytes])))
        }
        _ => Err(TokenizerError(format!("pre-tokenizer {name:?} is not known"))),
    }
}
