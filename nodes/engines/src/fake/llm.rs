//! A language model of sorts: its next token is a hash of all tokens before it, so that one lost, repeated or strange
//! token changes everything that follows.

use std::sync::Arc;

use mstar_blocks::TextStream;
use mstar_contract::{
    Engine, EngineUsage, ExecuteCx, FinishReason, In, Journal, RequestKey, Row, RowError, RowOutput, RowProgress,
    Usage, Value, WorkId,
};
use mstar_graph::{LoopName, OpName};

use super::faults::{FaultPlan, Reach, provoke};
use super::lexicon::Lexicon;
use crate::isolate::guard;
use crate::kv::{BlockTable, PagePool};
use crate::random;
use crate::sequence::{SequenceKey, Sequences};

/// What a fake language model may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeLlmLimits {
    /// KV pages.
    pub pages: usize,
    /// Most tokens of one row in one pass; a longer prompt takes several.
    pub prefill_chunk: usize,
    /// Bound on sampled tokens where the request gives none.
    pub max_tokens: u32,
}

/// A scripted engine in the shape of a paged one. Ops: `prefill` (`prompt`, text or tokens) and `decode` (`token`),
/// both to `token` and `text`; both end the loop that they are told to.
///
/// It keeps a sequence per request and label and pages for it, rebuilds a lost one from a journal and has forgotten
/// everything after a reset. A request with temperature 0 gets a text that its draws have no part in.
pub struct FakeLlm {
    limits: FakeLlmLimits,
    ends: LoopName,
    pool: PagePool,
    sequences: Sequences<Sequence>,
    faults: Arc<FaultPlan>,
}

/// One sequence.
struct Sequence {
    pages: BlockTable,
    hash: u64,
    length: usize,
    last: Option<u32>,
    prompt: u32,
    sampled: u32,
    bound: u32,
    text: TextStream,
    /// The row under way and the tokens that it has yet to append, in order.
    work: Option<(WorkId, Vec<u32>)>,
}

/// What became of a row that did not fail.
#[expect(clippy::large_enum_variant, reason = "lives for one call")]
enum Step {
    Done(RowOutput),
    More,
    Waiting,
}

/// What a row makes of its sequence before it samples.
#[derive(Default)]
struct Opening {
    append: Vec<u32>,
    prompt: usize,
    sampled: Vec<u32>,
}

// --- impl FakeLlmLimits ---

impl Default for FakeLlmLimits {
    fn default() -> Self {
        Self { pages: 1024, prefill_chunk: 256, max_tokens: 64 }
    }
}

// --- impl FakeLlm ---

impl FakeLlm {
    /// Returns a model that ends the loop of this name and draws its faults from a plan.
    pub fn new(ends: impl Into<LoopName>, limits: FakeLlmLimits, faults: Arc<FaultPlan>) -> Self {
        let pool = PagePool::new(limits.pages);
        Self { limits, ends: ends.into(), pool, sequences: Sequences::default(), faults }
    }

    /// Runs a row that may panic; the second panic is its end.
    fn isolated(&mut self, row: Row) -> RowProgress {
        let outcome = guard(|| self.advance(&row)).or_else(|_| guard(|| self.advance(&row)));
        let failed = match outcome {
            Ok(Ok(Step::Done(output))) => return RowProgress::Done(row.work, Ok(output)),
            Ok(Ok(Step::More)) => return RowProgress::More(row),
            Ok(Ok(Step::Waiting)) => return RowProgress::Waiting(row),
            Ok(Err(error)) => error,
            Err(panic) => RowError::Panicked(panic),
        };
        self.sequences.remove(SequenceKey::of(&row));
        RowProgress::Done(row.work, Err(failed))
    }

    fn advance(&mut self, row: &Row) -> Result<Step, RowError> {
        provoke(row)?;
        if !self.under_way(row) && !self.open(row)? {
            return Ok(Step::Waiting);
        }
        let chunk = self.limits.prefill_chunk;
        let sequence = self.sequences.get_mut(SequenceKey::of(row)).ok_or_else(lost)?;
        if !sequence.append(chunk) {
            return Ok(Step::More);
        }
        Ok(Step::Done(sequence.sample(row, &self.ends)))
    }

    fn under_way(&self, row: &Row) -> bool {
        let sequence = self.sequences.get(SequenceKey::of(row));
        sequence.and_then(|s| s.work.as_ref()).is_some_and(|(work, _)| *work == row.work)
    }

    /// Takes up a row; returns whether there were pages for it.
    fn open(&mut self, row: &Row) -> Result<bool, RowError> {
        let key = SequenceKey::of(row);
        let opening = Opening::of(row)?;
        if !begins(row) {
            let sequence = self.sequences.get_mut(key).ok_or_else(lost)?;
            sequence.work = Some((row.work, opening.append));
            return Ok(true);
        }
        self.sequences.remove(key);
        let bound = self.bound(row);
        let tokens = self.tokens_held(&opening, bound)?;
        let Some(pages) = self.pool.reserve(tokens) else { return Ok(false) };
        let stops = row.request().sampling.stop.clone();
        let mut sequence = Sequence {
            pages,
            hash: 0,
            length: 0,
            last: opening.sampled.last().copied(),
            prompt: opening.prompt as u32,
            sampled: opening.sampled.len() as u32,
            bound,
            text: TextStream::new(Arc::new(Lexicon), stops),
            work: Some((row.work, opening.append)),
        };
        for token in opening.sampled {
            sequence.text.push(token);
        }
        self.sequences.insert(key, sequence);
        Ok(true)
    }

    fn bound(&self, row: &Row) -> u32 {
        row.request().sampling.max_tokens.unwrap_or(self.limits.max_tokens).max(1)
    }

    /// Returns how many tokens a sequence may come to hold, or that it can never fit.
    fn tokens_held(&self, opening: &Opening, bound: u32) -> Result<usize, RowError> {
        let tokens = opening.prompt + bound as usize;
        let (pages, total) = (PagePool::pages_for(tokens), self.pool.total());
        if pages <= total {
            return Ok(tokens);
        }
        Err(RowError::TooLarge(format!(
            "{} prompt tokens and up to {bound} more take {pages} KV pages, there are {total}",
            opening.prompt
        )))
    }
}

impl Engine for FakeLlm {
    fn execute(&mut self, rows: Vec<Row>, _cx: &ExecuteCx<'_>) -> Vec<RowProgress> {
        self.faults.strike(Reach::Node);
        // A batch that fell goes on row by row, which is how this engine runs any batch.
        let _ = guard(|| self.faults.strike(Reach::Op));
        rows.into_iter().map(|row| self.isolated(row)).collect()
    }

    fn retire(&mut self, key: RequestKey) {
        self.sequences.retire(key);
    }

    fn reset(&mut self) {
        self.sequences.clear();
    }

    fn usage(&self) -> EngineUsage {
        let (kv_pages_used, kv_pages) = (self.pool.used(), self.pool.total());
        EngineUsage { kv_pages_used, kv_pages, sequences: self.sequences.len(), ..EngineUsage::default() }
    }
}

// --- impl Sequence ---

impl Sequence {
    /// Appends up to `most` of the tokens that the row under way brings; returns whether none are left.
    fn append(&mut self, most: usize) -> bool {
        let Some((_, append)) = &mut self.work else { return true };
        let now = append.len().min(most);
        for token in append.drain(..now) {
            self.hash = random::mix(self.hash ^ u64::from(token) ^ 0x5eed);
            self.length += 1;
        }
        debug_assert!(self.length <= self.pages.tokens());
        append.is_empty()
    }

    fn sample(&mut self, row: &Row, ends: &LoopName) -> RowOutput {
        self.work = None;
        let draw = if row.request().sampling.temperature == Some(0.0) { 0 } else { row.draw };
        let token = Lexicon::next(self.last, random::bits(self.hash ^ draw, 0));
        self.last = Some(token);
        self.sampled += 1;
        let (text, finish) = self.write(token);
        let mut output = RowOutput { sampled: Some(token), finish, ..RowOutput::default() };
        output.push("token", Value::token(token));
        if !text.is_empty() {
            output.push("text", Value::text(text));
        }
        if finish.is_some() {
            output.stops.push(ends.clone());
        }
        output.usage = Usage { prompt_tokens: if self.sampled == 1 { self.prompt } else { 0 }, completion_tokens: 1 };
        output
    }

    /// Returns the text that a token makes certain, and why it is the last, if it is.
    fn write(&mut self, token: u32) -> (String, Option<FinishReason>) {
        if token == Lexicon::END {
            return (self.text.finish(), Some(FinishReason::Stop));
        }
        let piece = self.text.push(token);
        if piece.stopped {
            return (piece.text, Some(FinishReason::Stop));
        }
        if self.sampled < self.bound {
            return (piece.text, None);
        }
        (piece.text + &self.text.finish(), Some(FinishReason::Length))
    }
}

// --- impl Opening ---

impl Opening {
    fn of(row: &Row) -> Result<Self, RowError> {
        let mut opening = Self::default();
        if let Some(journal) = &row.rebuild {
            opening.replay(journal)?;
        }
        let tokens = brought(&row.op, &row.inputs)?;
        if row.op.as_str() == "prefill" {
            opening = Self { prompt: tokens.len(), ..Self::default() };
        }
        opening.append.extend(tokens);
        Ok(opening)
    }

    fn replay(&mut self, journal: &Journal) -> Result<(), RowError> {
        for step in &journal.steps {
            let tokens = brought(&step.op, &step.inputs)?;
            self.prompt += if step.op.as_str() == "prefill" { tokens.len() } else { 0 };
            self.append.extend(tokens);
            // The last token was sampled but not fed back: whoever comes next brings it.
            let fed = step.sampled.len().saturating_sub(1);
            self.append.extend(&step.sampled[..fed]);
            self.sampled.extend(&step.sampled);
        }
        Ok(())
    }
}

fn begins(row: &Row) -> bool {
    row.op.as_str() == "prefill" || row.rebuild.is_some()
}

/// Returns the tokens that an op's inputs bring.
fn brought(op: &OpName, inputs: &[(mstar_graph::Port, In)]) -> Result<Vec<u32>, RowError> {
    let port = if op.as_str() == "prefill" { "prompt" } else { "token" };
    match inputs.iter().find(|(name, _)| name.as_str() == port) {
        Some((_, In::One(Value::Text(text)))) => Ok(Lexicon::tokens(text)),
        Some((_, In::One(Value::Tokens(tokens)))) => Ok(tokens.to_vec()),
        _ => Err(RowError::Internal(format!("input {port} is neither text nor tokens"))),
    }
}

fn lost() -> RowError {
    RowError::Internal("the sequence is lost and there is no journal".to_owned())
}

#[cfg(test)]
mod tests;
