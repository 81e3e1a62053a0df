//! A sentence cutter: text in pieces goes in, whole sentences come out.

use std::collections::BTreeMap;
use std::sync::Arc;

use mstar_contract::{Compute, ComputeCx, RequestKey, Row, RowError, RowOutput, Value};
use mstar_graph::OpName;

use super::faults::{FaultPlan, Reach, provoke};

/// Cuts a stream of text into sentences: op `cut`, chunks at `text`, any number of items at `item`. No byte is lost.
#[derive(Debug)]
pub struct FakeCutter {
    faults: Arc<FaultPlan>,
    unfinished: BTreeMap<(RequestKey, u8), String>,
}

// --- impl FakeCutter ---

impl FakeCutter {
    /// Returns a cutter that draws its faults from a plan.
    pub fn new(faults: Arc<FaultPlan>) -> Self {
        Self { faults, unfinished: BTreeMap::new() }
    }

    /// Returns the sentences that a row completes, and what is left of its text.
    fn cut(&self, row: &Row) -> Result<(RowOutput, String), RowError> {
        provoke(row)?;
        let chunk = row.chunk("text")?;
        let mut rest = self.unfinished.get(&(row.key, row.params.label)).cloned().unwrap_or_default();
        for item in &chunk.items[chunk.context..] {
            rest.push_str(item.as_text().ok_or_else(|| RowError::Internal("an item is not text".to_owned()))?);
        }
        let mut output = RowOutput::default();
        let end = if chunk.last { rest.len() } else { rest.rfind(SENTENCE_ENDS).map_or(0, |at| at + 1) };
        for sentence in rest[..end].split_inclusive(SENTENCE_ENDS) {
            output.push("item", Value::text(sentence));
        }
        rest.drain(..end);
        Ok((output, rest))
    }
}

/// What ends a sentence; each is one byte.
pub(super) const SENTENCE_ENDS: [char; 4] = ['.', '!', '?', '\n'];

impl Compute for FakeCutter {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        self.faults.strike(Reach::Op);
        let cut: Vec<_> = rows.iter().map(|row| self.cut(row)).collect();
        // Nothing panics from here on, so that a batch is cut as a whole or not at all.
        let commit = |(row, cut): (&Row, Result<(RowOutput, String), RowError>)| {
            cut.map(|(output, rest)| {
                self.unfinished.insert((row.key, row.params.label), rest);
                output
            })
        };
        rows.iter().zip(cut).map(commit).collect()
    }

    fn retire(&mut self, key: RequestKey) {
        self.unfinished.retain(|(held, _), _| held.id != key.id || held.attempt > key.attempt);
    }

    fn reset(&mut self) {
        self.unfinished.clear();
    }

    fn held(&self) -> usize {
        self.unfinished.len()
    }
}
