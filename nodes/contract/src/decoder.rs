//! The author's side of a node with paged KV: one forward pass; pages, sampling and text are the engine's.

use std::sync::Arc;

use mstar_graph::OpName;
use mstar_kernels::{Cx, KernelError, KvPages, Precision, Tensor};

use crate::{Request, Row, RowError, Sampling, StepParams};

/// A transformer decoder over paged KV.
///
/// The engine around it owns pages and sequences. Its ops have these outputs, each optional in a graph: `token` (the
/// sampled token), `text` (complete UTF-8 characters of the reply; only with [`Decoder::text`]), `detail` (JSON with
/// the log-probabilities of each token, when asked for).
pub trait Decoder: Send {
    /// Returns the shape of its KV cache.
    fn geometry(&self) -> KvGeometry;

    /// Returns what a row brings to its sequence: the tokens to append and, for cross-attention, the context tensor.
    fn prompt(&self, op: &OpName, row: &Row) -> Result<Prompt, RowError>;

    /// Computes the cross-attention keys and values of a context, once per sequence.
    fn cross(&mut self, _cx: &Cx, _context: &Tensor) -> Result<CrossKv, KernelError> {
        Ok(CrossKv::default())
    }

    /// Appends the batch's tokens to their sequences and returns the logits `[wanted rows, vocabulary]`, in f32, of
    /// the last token of every row that wants them, in row order.
    fn forward(&mut self, cx: &Cx, batch: &DecodeBatch<'_>, kv: &mut KvPages) -> Result<Tensor, KernelError>;

    /// Returns the sampling that applies where the request says nothing.
    fn default_sampling(&self) -> Sampling;

    /// Returns what the request says of this decoder's sampling. In a walk with several decoders it may be meant for
    /// another one.
    fn sampling(&self, request: &Request) -> Sampling {
        request.sampling.clone()
    }

    /// Returns whether the token ends the output. It is not part of the text.
    fn ends(&self, token: u32) -> bool;

    /// Bends the logits to the model's rules (suppressed tokens, timestamps) before anything else looks at them.
    fn constrain(&self, _logits: &mut [f32], _sequence: &SequenceView<'_>) {}

    /// Returns the detokeniser, when the output is text.
    fn text(&self) -> Option<Arc<dyn Detokenizer>> {
        None
    }
}

/// The shape of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    /// Layers that attend to their own past.
    pub layers: usize,
    /// Key and value heads of each.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Most tokens a sequence can hold.
    pub context: usize,
    /// The numbers it is kept in.
    pub precision: Precision,
}

/// What a row brings to its sequence.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// Tokens to append.
    pub tokens: Vec<u32>,
    /// What to attend across to, kept until the sequence begins anew.
    pub context: Option<Tensor>,
    /// Most tokens this sequence may still sample, when the op or the request bounds it.
    pub max_new: Option<u32>,
}

/// Cross-attention keys and values, a pair per layer, in whatever form the decoder attends to.
#[derive(Clone, Debug, Default)]
pub struct CrossKv {
    /// One (keys, values) pair per layer.
    pub layers: Vec<(Tensor, Tensor)>,
    /// How many rows of the context they stand for.
    pub rows: usize,
}

/// Rows whose tokens are appended in one pass.
#[derive(Debug)]
pub struct DecodeBatch<'a> {
    /// All rows' tokens, one row after the other.
    pub tokens: &'a [u32],
    /// The rows.
    pub rows: &'a [DecodeRow<'a>],
}

/// One sequence's share of a pass.
#[derive(Clone, Debug)]
pub struct DecodeRow<'a> {
    /// Where its tokens stand in the batch.
    pub tokens: std::ops::Range<usize>,
    /// The position of its first token in the sequence: how many it holds already.
    pub position: usize,
    /// Its pages, enough for all its tokens.
    pub pages: &'a [u32],
    /// What it attends across to.
    pub cross: Option<&'a CrossKv>,
    /// Whether the logits of its last token are wanted.
    pub logits: bool,
}

/// A sequence as the model's rules may look at it.
#[derive(Clone, Debug)]
pub struct SequenceView<'a> {
    /// The tokens of the prompt.
    pub prompt: &'a [u32],
    /// The tokens sampled since.
    pub sampled: &'a [u32],
    /// The request's share.
    pub params: &'a StepParams,
}

/// Turns tokens into bytes of text.
pub trait Detokenizer: Send + Sync {
    /// Returns the bytes that one token stands for, which may be part of a character; nothing for special tokens.
    fn bytes(&self, token: u32) -> &[u8];
}
