//! Judges the network in float32 against tensors recorded from another implementation.

use std::path::Path;

use mstar_blocks::verify::{Judge, Report, Tolerance};
use mstar_blocks::{ChatTemplate, Tokenizer};
use mstar_contract::{DecodeBatch, DecodeRow, Precision};
use mstar_kernels::ops::{self, KvSize, PAGE_TOKENS};
use mstar_kernels::{Cx, DType, KvPages, Tensor};
use mstar_weights::{MetaValue, WeightFile};

use crate::Network;

const LOGITS: Tolerance = Tolerance::OfLargest(1e-3);

/// One recorded prompt on its way.
struct Sequence {
    tokens: Vec<u32>,
    /// How many of the tokens are the prompt's.
    prompt: usize,
    /// How many were recorded after it.
    steps: usize,
    pages: Vec<u32>,
    log_probabilities: Vec<f32>,
}

/// Compares the network of the GGUF file in `weights` with `smollm2.safetensors` in `golden`: prompts, the last prompt
/// token's logits and hidden states, and as many greedy tokens as were recorded.
pub fn check(weights: &Path, golden: &Path, cx: &Cx) -> Result<Report, String> {
    let file = WeightFile::open(weights).map_err(|e| e.to_string())?;
    let recorded = WeightFile::open(&golden.join("smollm2.safetensors")).map_err(|e| e.to_string())?;
    let network = Network::load(&file, Precision::F32, cx)?;
    let mut judge = Judge::new(&recorded);
    let prompts = std::fs::read(golden.join("smollm2_prompts.json")).map_err(|e| e.to_string())?;
    check_prompts(&file, &prompts, &mut judge)?;
    run(&network, &mut judge, cx).map_err(|e| e.to_string())?;
    Ok(judge.finish())
}

/// Compares what template and tokeniser make of the conversations with the recorded ids.
fn check_prompts(file: &WeightFile, prompts: &[u8], judge: &mut Judge<'_>) -> Result<(), String> {
    let tokenizer = crate::nodes::tokenizer(file)?;
    let source = file.meta("tokenizer.chat_template").and_then(MetaValue::as_str).unwrap_or_default();
    let template = ChatTemplate::new(source, "", "").map_err(|e| e.to_string())?;
    let prompts: serde_json::Value = serde_json::from_slice(prompts).map_err(|e| e.to_string())?;
    for (i, messages) in prompts.as_array().into_iter().flatten().enumerate() {
        let ids = encode(&template, &tokenizer, messages)?;
        judge.check_ids(&format!("p{i}.input_ids"), &ids).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn encode(template: &ChatTemplate, tokenizer: &Tokenizer, messages: &serde_json::Value) -> Result<Vec<u32>, String> {
    let text = template.render(messages).map_err(|e| e.to_string())?;
    tokenizer.encode(&text).map_err(|e| e.to_string())
}

fn run(network: &Network, judge: &mut Judge<'_>, cx: &Cx) -> Result<(), Box<dyn std::error::Error>> {
    let mut sequences = Vec::new();
    let mut pages = 0;
    while judge.has(&format!("p{}.input_ids", sequences.len())) {
        let i = sequences.len();
        let tokens = judge.input_ids(&format!("p{i}.input_ids"))?;
        let (prompt, steps) = (tokens.len(), judge.input_ids(&format!("p{i}.greedy"))?.len());
        if prompt == 0 || steps == 0 {
            return Err(format!("p{i} records no prompt or no answer").into());
        }
        let count = (prompt + steps).div_ceil(PAGE_TOKENS) as u32;
        let pages_of = (pages..pages + count).collect();
        sequences.push(Sequence { tokens, prompt, steps, pages: pages_of, log_probabilities: vec![] });
        pages += count;
    }
    let config = network.config();
    let (layers, heads, head_dim) = (config.layers, config.kv_heads, config.head_dim);
    let size = KvSize { layers, pages: pages as usize, heads, head_dim };
    let mut kv = KvPages::new(size, DType::F32)?;
    for (i, sequence) in sequences.iter_mut().enumerate() {
        let hidden = prefill(network, sequence, &mut kv, cx)?;
        judge.check(&format!("p{i}.logits"), hidden.1.f32s()?, LOGITS)?;
        judge.check(&format!("p{i}.hidden"), &hidden.0, LOGITS)?;
    }
    loop {
        let mut rest: Vec<&mut Sequence> = sequences.iter_mut().filter(|sequence| !sequence.ended()).collect();
        if rest.is_empty() {
            break;
        }
        decode(network, &mut rest, &mut kv, cx)?;
    }
    for (i, sequence) in sequences.iter().enumerate() {
        judge.check_ids(&format!("p{i}.greedy"), &sequence.tokens[sequence.prompt..])?;
        judge.check(&format!("p{i}.greedy_logprob"), &sequence.log_probabilities, Tolerance::Absolute(1e-3))?;
    }
    Ok(())
}

/// Appends a prompt and its likeliest next token; returns the last token's hidden states, joined, and its logits.
fn prefill(
    network: &Network,
    sequence: &mut Sequence,
    kv: &mut KvPages,
    cx: &Cx,
) -> Result<(Vec<f32>, Tensor), Box<dyn std::error::Error>> {
    let mut hidden = Vec::new();
    let mut tap = |_: usize, x: &Tensor| {
        let width = x.shape().width();
        hidden.extend_from_slice(&x.f32s()?[x.len() - width..]);
        Ok(())
    };
    let row = DecodeRow { tokens: 0..sequence.prompt, position: 0, pages: &sequence.pages, cross: None, logits: true };
    let batch = DecodeBatch { tokens: &sequence.tokens, rows: &[row] };
    let logits = network.forward(cx, &batch, kv, &mut tap)?;
    sequence.take(&logits, cx)?;
    Ok((hidden, logits))
}

/// Appends the last token of some sequences in one pass, and each one's likeliest next token.
fn decode(
    network: &Network,
    sequences: &mut [&mut Sequence],
    kv: &mut KvPages,
    cx: &Cx,
) -> Result<(), Box<dyn std::error::Error>> {
    let tokens: Vec<u32> = sequences.iter().filter_map(|s| s.tokens.last()).copied().collect();
    let rows: Vec<DecodeRow<'_>> = sequences
        .iter()
        .enumerate()
        .map(|(i, s)| DecodeRow {
            tokens: i..i + 1,
            position: s.tokens.len() - 1,
            pages: &s.pages,
            cross: None,
            logits: true,
        })
        .collect();
    let logits = network.forward(cx, &DecodeBatch { tokens: &tokens, rows: &rows }, kv, &mut |_, _| Ok(()))?;
    for (i, sequence) in sequences.iter_mut().enumerate() {
        sequence.take(&logits.rows(i..i + 1)?, cx)?;
    }
    Ok(())
}

// --- impl Sequence ---

impl Sequence {
    fn ended(&self) -> bool {
        self.tokens.len() >= self.prompt + self.steps
    }

    fn take(&mut self, logits: &Tensor, cx: &Cx) -> Result<(), Box<dyn std::error::Error>> {
        let next = ops::argmax(cx, logits)?[0];
        self.log_probabilities.push(ops::log_softmax(cx, logits)?.f32s()?[next as usize]);
        self.tokens.push(next);
        Ok(())
    }
}
