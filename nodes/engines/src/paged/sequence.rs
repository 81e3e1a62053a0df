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
    pub(super) cross: Option<CrossKv>,
    pub(super) prompt: Vec<u32>,
    pub(super) sampled: Vec<u32>,
    pub(super) sampler: Sampler,
    pub(super) history: History,
    pub(super) work: Option<Work>,
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
            table,
            length: 0,
            cross: None,
            prompt: Vec::new(),
            sampled: Vec::new(),
            sampler: Sampler::new(&sampling, &decoder.default_sampling()),
            history: History::default(),
            work: None,
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

    /// Takes up a row: appends what its parts bring when its turn comes.
    pub(super) fn take_up(&mut self, id: WorkId, parts: Vec<Part>, decoder: &dyn Decoder) -> Result<(), RowError> {
        let mut tokens = Vec::new();
        for part in parts {
            self.bring(&part.prompt)?;
            tokens.extend(part.prompt.tokens);
            for (i, &token) in part.sampled.iter().enumerate() {
                if i > 0 {
                    let fed = part.sampled[i - 1];
                    self.extent.bring(&[fed], None)?;
                    tokens.push(fed);
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
        self.work = Some(Work { id, tokens, done: 0 });
        Ok(())
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
