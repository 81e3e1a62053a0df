//! What a row brings to its sequence: its own tokens, and when the sequence was lost, all that came before them.

use std::collections::BTreeMap;

use mstar_contract::{Decoder, KvUse, OpDecl, Prompt, Row, RowError};
use mstar_graph::{LoopName, OpName};

/// The ops of a paged component.
#[derive(Debug)]
pub(super) struct PagedOps(BTreeMap<OpName, PagedOp>);

/// One op.
#[derive(Clone, Debug)]
pub(super) struct PagedOp {
    /// How it uses its sequence.
    pub(super) kv: KvUse,
    /// The loop that it ends.
    pub(super) stop: Option<LoopName>,
}

/// What a row brings.
#[derive(Debug)]
pub(super) struct Opening {
    /// The row's own part comes last; the others were run before and are repeated without sampling.
    pub(super) parts: Vec<Part>,
    /// The sequence begins anew.
    pub(super) begins: bool,
}

/// What one op brings, and what was sampled from there on.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) prompt: Prompt,
    pub(super) sampled: Vec<u32>,
}

// --- impl PagedOps ---

impl PagedOps {
    /// Takes up a component's declarations; an op that says nothing of its KV goes on with its sequence.
    pub(super) fn new(ops: &[OpDecl]) -> Self {
        let op = |decl: &OpDecl| PagedOp { kv: decl.kv.unwrap_or(KvUse::Extend), stop: decl.stop.clone() };
        Self(ops.iter().map(|decl| (decl.name.clone(), op(decl))).collect())
    }

    pub(super) fn find(&self, name: &OpName) -> Result<&PagedOp, RowError> {
        self.0.get(name).ok_or_else(|| RowError::Internal(format!("the component has no op {name}")))
    }
}

// --- impl Opening ---

impl Opening {
    /// Asks the decoder what a row brings, and what the steps of its journal brought.
    pub(super) fn of(decoder: &dyn Decoder, ops: &PagedOps, row: &Row) -> Result<Self, RowError> {
        let mut parts = Vec::new();
        let kv = ops.find(&row.op)?.kv;
        if kv == KvUse::Extend {
            for step in row.rebuild.iter().flat_map(|journal| &journal.steps) {
                if ops.find(&step.op)?.kv == KvUse::Begin {
                    parts.clear();
                }
                let past = Row { inputs: step.inputs.clone(), rebuild: None, ..row.clone() };
                parts.push(Part { prompt: decoder.prompt(&step.op, &past)?, sampled: step.sampled.clone() });
            }
        }
        parts.push(Part { prompt: decoder.prompt(&row.op, row)?, sampled: Vec::new() });
        Ok(Self { parts, begins: kv == KvUse::Begin || row.rebuild.is_some() })
    }

    /// Returns the tokens that the row appends: of each part its prompt and what was sampled and fed back since.
    pub(super) fn tokens(&self) -> Vec<u32> {
        let fed = |part: &Part| part.sampled.split_last().map_or(Vec::new(), |(_, fed)| fed.to_vec());
        self.parts.iter().flat_map(|part| part.prompt.tokens.iter().copied().chain(fed(part))).collect()
    }

    /// Returns whether what the tokens come to depends on themselves alone.
    pub(super) fn plain(&self) -> bool {
        self.parts.iter().all(|part| part.prompt.context.is_none())
    }
}
