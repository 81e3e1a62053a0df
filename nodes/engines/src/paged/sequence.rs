//! One sequence: its pages, what it has read and written, and the row under way.

use std::sync::Arc;

use mstar_blocks::TextStream;
use mstar_contract::{CrossKv, Decoder, Detokenizer, FinishReason, Prompt, Row, RowError, WorkId};

use super::extent::{Brought, Extent};
use super::opening::Part;
use crate::kv::BlockTable;
use crate::sample::{History, Sampler};

/// A sequence. Replaying a journal takes it through the same states as the steps did at first.
pub(super) struct Sequence {
    pub(super) table: BlockTable,
    /// Tokens whose keys and values are in the pages.
    pub(super) length: usize,
    /// Of these, the tokens in the last page, which is not full.
    page: Vec<u32>,
    pub(super) cross: Option<CrossKv>,
    pub(super) prompt: Vec<u32>,
    pub(super) sampled: Vec<u32>,
    pub(super) sampler: Sampler,
    pub(super) history: History,
    pub(super) work: Option<Work>,
    /// The engine's pass that last gave it a token.
    pub(super) replied: u64,
    extent: Extent,
    text: Option<TextStream>,
    detokenizer: Option<Arc<dyn Detokenizer>>,
    stops: Vec<String>,
    finish: Option<FinishReason>,
    /// Tokens of prompt not yet told as usage.
    untold: u32,
}

/// The row under way.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: WorkId,
    /// The tokens to append.
    pub(super) tokens: Vec<u32>,
    /// How many of them were appended.
    pub(super) done: usize,
}

/// Passes after which a sequence that does not come back is not expected any more.
const RECENT: u64 = 2;

/// What became of a sampled token.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Text that is certain now.
    pub(super) text: String,
    /// Why the token is the last, if it is.
    pub(super) finish: Option<FinishReason>,
}

// --- impl Work ---

impl Work {
    pub(super) fn left(&self) -> usize {
        self.tokens.len() - self.done
    }
}

// --- impl Sequence ---

impl Sequence {
    /// Returns an empty sequence for a row's request.
    pub(super) fn new(row: &Row, decoder: &dyn Decoder, extent: Extent, table: BlockTable) -> Self {
        let sampling = decoder.sampling(row.request());
        let detokenizer = decoder.text();
        let mut sequence = Self {
            length: table.known_tokens().unwrap_or(0),
            page: Vec::new(),
            table,
            cross: None,
            prompt: Vec::new(),
            sampled: Vec::new(),
            sampler: Sampler::new(&sampling, &decoder.default_sampling()),
            history: History::default(),
            work: None,
            replied: 0,
            extent,
            text: None,
            detokenizer,
            stops: sampling.stop,
            finish: None,
            untold: 0,
        };
        sequence.text = sequence.fresh_text();
        sequence
    }

    /// Takes up a row that brings these parts: their tokens are appended when its turn comes.
    pub(super) fn take_up(&mut self, work: Work, parts: Vec<Part>, decoder: &dyn Decoder) -> Result<(), RowError> {
        for part in parts {
            self.bring(&part.prompt)?;
            for (i, &token) in part.sampled.iter().enumerate() {
                if i > 0 {
                    self.extent.bring(&[part.sampled[i - 1]], None)?;
                }
                self.write(token, decoder);
                self.untold = 0;
            }
        }
        if self.extent.capacity() > self.table.tokens() && !self.table.grow(self.extent.capacity()) {
            let more =
                format!("the sequence would grow to {} tokens, for which no pages are free", self.extent.capacity());
            return Err(RowError::TooLarge(more));
        }
        self.work = Some(work);
        Ok(())
    }

    /// Notes that so many tokens of the row under way are in the pages; pages that are full become known.
    pub(super) fn appended(&mut self, tokens: usize) {
        let work = self.work.as_mut().expect("invariant: a row is under way");
        let span = work.done..work.done + tokens;
        (work.done, self.length) = (span.end, self.length + tokens);
        // Across a context, tokens are not all that their numbers depend on.
        if self.cross.is_none() && self.table.known_tokens().is_some() {
            self.page.extend_from_slice(&work.tokens[span]);
            let (full, rest) = self.page.as_chunks();
            full.iter().for_each(|page| self.table.learn(page));
            self.page = rest.to_vec();
        }
    }

    fn bring(&mut self, prompt: &Prompt) -> Result<(), RowError> {
        if self.extent.bring(&prompt.tokens, prompt.max_new)? == Brought::Feedback {
            return Ok(());
        }
        if self.finish.take().is_some() {
            self.text = self.fresh_text();
        }
        if self.sampler.looks_back() {
            self.history.read(&prompt.tokens);
        }
        self.prompt.extend(&prompt.tokens);
        self.untold += u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX);
        Ok(())
    }

    /// Takes a sampled token.
    pub(super) fn write(&mut self, token: u32, decoder: &dyn Decoder) -> Written {
        self.extent.wrote(token);
        self.sampled.push(token);
        if self.sampler.looks_back() {
            self.history.wrote(token);
        }
        let mut written = Written::default();
        let ends = decoder.ends(token);
        if let (Some(text), false) = (&mut self.text, ends) {
            let piece = text.push(token);
            written.text = piece.text;
            if piece.stopped {
                written.finish = Some(FinishReason::Stop);
            }
        }
        if ends {
            written.finish = Some(FinishReason::Stop);
        } else if written.finish.is_none() && self.extent.exhausted() {
            written.finish = Some(FinishReason::Length);
        }
        if let (Some(text), Some(_)) = (&mut self.text, written.finish) {
            written.text.push_str(&text.finish());
        }
        self.finish = written.finish;
        written
    }

    /// Returns whether it is in the middle of a reply: it got a token lately, and not its last.
    pub(super) fn replies_at(&self, pass: u64) -> bool {
        self.replied > 0 && self.finish.is_none() && self.work.is_none() && pass - self.replied <= RECENT
    }

    /// Returns the tokens of prompt to tell as usage, once.
    pub(super) fn tell_prompt(&mut self) -> u32 {
        std::mem::take(&mut self.untold)
    }

    /// Returns the bytes that a token stands for.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        self.detokenizer.as_ref().map_or(&[], |detokenizer| detokenizer.bytes(token))
    }

    /// Returns whether the tokens sampled are text.
    pub(super) fn is_text(&self) -> bool {
        self.detokenizer.is_some()
    }

    fn fresh_text(&self) -> Option<TextStream> {
        self.detokenizer.as_ref().map(|detokenizer| TextStream::new(Arc::clone(detokenizer), self.stops.clone()))
    }
}
