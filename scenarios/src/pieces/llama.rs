//! A Llama from a GGUF file: prompts and decode steps of several sequences.

use std::path::Path;

use mstar_contract::{DecodeBatch, DecodeRow};
use mstar_kernels::ops::KvSize;
use mstar_kernels::{Cx, DType, KvPages, Precision, Tensor};
use mstar_smollm2::Network;
use mstar_weights::WeightFile;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Pieces, likeliest, numbers, pages_of, wrong};
use crate::error::StoryError;

/// The network, and room for the sequences that are asked for.
pub struct LlamaPieces {
    network: Network,
    cx: Cx,
    kv: KvPages,
    pages: Vec<u32>,
    pages_each: usize,
}

/// Most sequences, and most tokens of one.
const SEQUENCES: usize = 16;
const TOKENS: usize = 1024;
/// Tokens of one pass over prompts: what a deployment allows by default.
const PASS: usize = 512;

// --- impl LlamaPieces ---

impl LlamaPieces {
    /// Loads the network from a GGUF file, or a folder with one.
    pub fn load(path: &Path, precision: Precision, cx: Cx) -> Result<Self, StoryError> {
        let network = Network::load(&WeightFile::open(path).map_err(wrong)?, precision, &cx).map_err(wrong)?;
        let config = network.config();
        let (pages, pages_each) = pages_of(SEQUENCES, TOKENS);
        let (layers, heads, head_dim) = (config.layers, config.kv_heads, config.head_dim);
        let dtype = if precision == Precision::F32 { DType::F32 } else { DType::BF16 };
        let kv = KvPages::new(KvSize { layers, pages: pages.len(), heads, head_dim }, dtype).map_err(wrong)?;
        Ok(Self { network, cx, kv, pages, pages_each })
    }

    /// Appends as many tokens to each of some sequences.
    fn append(&mut self, sequences: std::ops::Range<usize>, tokens: &[u32], at: usize) -> Result<Tensor, StoryError> {
        let each = tokens.len() / sequences.len();
        let rows: Vec<DecodeRow<'_>> = sequences
            .enumerate()
            .map(|(i, sequence)| DecodeRow {
                tokens: i * each..(i + 1) * each,
                position: at,
                pages: &self.pages[sequence * self.pages_each..][..self.pages_each],
                cross: None,
                logits: true,
            })
            .collect();
        let batch = DecodeBatch { tokens, rows: &rows };
        self.network.forward(&self.cx, &batch, &mut self.kv, &mut |_, _| Ok(())).map_err(wrong)
    }

    /// Reads a prompt into each sequence and returns the likeliest next tokens.
    fn prefill(&mut self, sequences: usize, prompt: usize) -> Result<Vec<u32>, StoryError> {
        let vocabulary = self.network.config().vocabulary as u32;
        let together = (PASS / prompt).clamp(1, sequences);
        let mut next = Vec::with_capacity(sequences);
        for first in (0..sequences).step_by(together) {
            let some = first..(first + together).min(sequences);
            let count = (some.len() * prompt) as u32;
            let tokens: Vec<u32> = (0..count).map(|i| i.wrapping_mul(2_654_435_761) % vocabulary).collect();
            let logits = self.append(some, &tokens, 0)?;
            next.extend(likeliest(&self.cx, &logits)?);
        }
        Ok(next)
    }
}

impl Pieces for LlamaPieces {
    /// `run SEQUENCES PROMPT STEPS`: reads a prompt into each sequence, then appends so many tokens to each.
    fn time(&mut self, words: &[&str]) -> Result<Value, StoryError> {
        let [sequences, prompt, steps] = numbers(words)?;
        let fits = (1..=SEQUENCES).contains(&sequences) && prompt > 0 && prompt + steps <= TOKENS;
        if words.first() != Some(&"run") || !fits {
            return Err(StoryError::Answer(format!("{words:?}: at most {SEQUENCES} sequences of {TOKENS} tokens")));
        }
        let began = Instant::now();
        let mut next = self.prefill(sequences, prompt)?;
        let prefill = began.elapsed().as_secs_f64();
        let began = Instant::now();
        for step in 0..steps {
            let logits = self.append(0..sequences, &next, prompt + step)?;
            next = likeliest(&self.cx, &logits)?;
        }
        let decode = began.elapsed().as_secs_f64();
        Ok(json!({
            "prefill_s": prefill, "prefill_tokens_per_s": (sequences * prompt) as f64 / prefill,
            "decode_s": decode, "decode_tokens_per_s": (sequences * steps) as f64 / decode,
        }))
    }
}
