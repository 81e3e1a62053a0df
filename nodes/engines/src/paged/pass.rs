//! One batch: rows are taken up, share the budget of tokens, go through one forward pass, and are sampled.

use mstar_contract::{DecodeBatch, DecodeRow, Row, RowError, RowOutput, RowProgress};
use mstar_kernels::{Cx, Tensor};

use super::PagedEngine;
use super::division::{Room, divide};
use super::output::sample;
use super::pace::{Crowd, Load};
use crate::isolate::guard;
use crate::sequence::SequenceKey;

/// What became of a row.
#[expect(clippy::large_enum_variant, reason = "lives for one batch")]
enum Outcome {
    Done(Result<RowOutput, RowError>),
    More,
    Waiting,
}

/// What a row appends in this pass.
#[derive(Clone, Copy)]
struct Share {
    /// Its place in the batch.
    place: usize,
    key: SequenceKey,
    tokens: usize,
    /// Nothing is left to append after it, so that a token is sampled.
    completes: bool,
}

impl PagedEngine {
    pub(super) fn run_batch(&mut self, rows: Vec<Row>, cx: &Cx) -> Vec<RowProgress> {
        self.passes += 1;
        self.last = Some(Load::default());
        let mut outcomes: Vec<Option<Outcome>> = rows.iter().map(|row| self.admit(row, cx)).collect();
        let shares = self.share(&rows, &mut outcomes);
        for (share, outcome) in self.compute(&rows, shares, cx) {
            outcomes[share.place] = Some(outcome);
        }
        let answer = |(row, outcome): (Row, Option<Outcome>)| match outcome {
            Some(Outcome::Done(result)) => RowProgress::Done(row.work, result),
            Some(Outcome::Waiting) => RowProgress::Waiting(row),
            // A row without a share goes into the next batch as it is.
            Some(Outcome::More) | None => RowProgress::More(row),
        };
        rows.into_iter().zip(outcomes).map(answer).collect()
    }

    /// Takes up a row, unless it is under way; returns what becomes of it when it does not take part.
    fn admit(&mut self, row: &Row, cx: &Cx) -> Option<Outcome> {
        if self.under_way(row) {
            return None;
        }
        let taken = guard(|| self.take_up(row, cx)).or_else(|_| guard(|| self.take_up(row, cx)));
        match taken {
            Ok(Ok(true)) => None,
            Ok(Ok(false)) => Some(Outcome::Waiting),
            Ok(Err(error)) => Some(self.fail(row, error)),
            Err(panic) => Some(self.fail(row, RowError::Panicked(panic))),
        }
    }

    /// Shares the budget: rows that append one token come first, prompts get what is left and what those who are in
    /// the middle of their replies can bear.
    fn share(&mut self, rows: &[Row], outcomes: &mut [Option<Outcome>]) -> Vec<Share> {
        let mut wants = Vec::with_capacity(rows.len());
        for (place, row) in rows.iter().enumerate() {
            if outcomes[place].is_some() {
                continue;
            }
            let key = SequenceKey::of(row);
            match self.sequences.get(key).and_then(|sequence| sequence.work.as_ref()) {
                Some(work) if work.id == row.work => wants.push((place, key, work.left())),
                _ => {
                    let error = RowError::Internal("another row of the batch took the sequence".to_owned());
                    outcomes[place] = Some(Outcome::Done(Err(error)));
                }
            }
        }
        let left: Vec<usize> = wants.iter().map(|&(.., left)| left).collect();
        let room = self.room(&wants);
        let tokens = divide(&left, room);
        let given = || left.iter().zip(&tokens);
        self.last = self.last.map(|_| Load {
            steps: given().filter(|(left, tokens)| **left == 1 && **tokens == 1).count(),
            prompt: given().filter(|(left, _)| **left > 1).map(|(_, tokens)| tokens).sum(),
            room: room.prompts,
        });
        let share = |((place, key, left), tokens)| Share { place, key, tokens, completes: tokens == left };
        wants.into_iter().zip(tokens).map(share).filter(|share| share.tokens > 0).collect()
    }

    /// Returns what the pass has room for.
    fn room(&self, wants: &[(usize, SequenceKey, usize)]) -> Room {
        let singles = wants.iter().filter(|(.., left)| *left == 1).count();
        let budget = self.limits.max_batch_tokens.max(1);
        let waiting = wants.len() - singles;
        // However many reply, a prompt that waits gets on.
        let steps = singles.min(if waiting > 0 && budget > 1 { budget - 1 } else { budget });
        let crowd = Crowd { steps, away: self.away(wants), prompts: waiting };
        let prompts = self.pace.prompt_tokens(crowd).min(budget - steps);
        Room { steps, prompts, piece: self.limits.prefill_chunk.max(1), pass: self.passes }
    }

    /// Returns how many sequences are in the middle of a reply without a row here: they may want the next pass.
    fn away(&self, wants: &[(usize, SequenceKey, usize)]) -> usize {
        let recent = self.sequences.iter().filter(|(_, sequence)| sequence.replies_at(self.passes));
        recent.filter(|(key, _)| !wants.iter().any(|(_, here, _)| here == key)).count()
    }

    fn compute(&mut self, rows: &[Row], shares: Vec<Share>, cx: &Cx) -> Vec<(Share, Outcome)> {
        if shares.is_empty() {
            return Vec::new();
        }
        if let Ok(logits) = self.forward(&shares, cx) {
            return self.settle(rows, &shares, logits);
        }
        self.last = None;
        // What the pass wrote lies behind the ends of its sequences: each row writes it again.
        let alone = |share: Share| {
            let one = [share];
            match self.forward(&one, cx).or_else(|_| self.forward(&one, cx)) {
                Ok(logits) => self.settle(rows, &one, logits),
                Err(error) => vec![(share, self.fail(&rows[share.place], error))],
            }
        };
        shares.into_iter().flat_map(alone).collect()
    }

    /// Appends the shares' tokens and returns the logits of the rows that they complete.
    fn forward(&mut self, shares: &[Share], cx: &Cx) -> Result<Tensor, RowError> {
        let Self { decoder, pages, sequences, captures, .. } = self;
        let mut tokens = Vec::new();
        let mut rows = Vec::with_capacity(shares.len());
        for share in shares {
            let sequence = sequences.get(share.key).expect("invariant: a share's sequence is under way");
            let work = sequence.work.as_ref().expect("invariant: a share's sequence is under way");
            let start = tokens.len();
            tokens.extend_from_slice(&work.tokens[work.done..work.done + share.tokens]);
            rows.push(DecodeRow {
                tokens: start..tokens.len(),
                position: sequence.length,
                pages: sequence.table.pages(),
                cross: sequence.cross.as_ref(),
                logits: share.completes,
            });
        }
        let batch = DecodeBatch { tokens: &tokens, rows: &rows };
        // Passes in which every sequence appends a token are alike as long as the sequences are the same ones.
        let steps = shares.iter().all(|share| share.tokens == 1 && share.completes);
        let mut pass = || decoder.forward(cx, &batch, pages);
        let logits = guard(|| match captures {
            Some(captures) if steps => captures.run(shares.len() as u64, pass)?.to_host(),
            _ => pass()?.to_host(),
        });
        let logits = logits.map_err(RowError::Panicked)??;
        let wanted = shares.iter().filter(|share| share.completes).count();
        if wanted > 0 && (logits.shape().height() != wanted || logits.shape().width() == 0) {
            let shape = logits.shape();
            return Err(RowError::Internal(format!("the decoder gave logits {shape} for {wanted} rows")));
        }
        Ok(logits)
    }

    /// Moves the sequences on and samples where a row is complete.
    fn settle(&mut self, rows: &[Row], shares: &[Share], mut logits: Tensor) -> Vec<(Share, Outcome)> {
        let width = logits.shape().width().max(1);
        let any = shares.iter().any(|share| share.completes);
        let numbers = match logits.f32s_mut() {
            Ok(numbers) => numbers,
            Err(_) if !any => &mut [],
            Err(error) => {
                let failed = RowError::from(error).to_string();
                let fail = |&share: &Share| (share, self.fail(&rows[share.place], RowError::Internal(failed.clone())));
                return shares.iter().map(fail).collect();
            }
        };
        let mut logits = numbers.chunks_exact_mut(width);
        let mut settled = Vec::with_capacity(shares.len());
        for &share in shares {
            let row = &rows[share.place];
            let sequence = self.sequences.get_mut(share.key).expect("invariant: a share's sequence is under way");
            sequence.appended(share.tokens);
            if !share.completes {
                settled.push((share, Outcome::More));
                continue;
            }
            sequence.work = None;
            sequence.replied = self.passes;
            let logits = logits.next().expect("invariant: there are logits for every complete row");
            let stop = self.ops.find(&row.op).ok().and_then(|op| op.stop.as_ref());
            let outcome = match guard(|| sample(sequence, &*self.decoder, row, logits, stop)) {
                Ok(Ok(output)) => Outcome::Done(Ok(output)),
                Ok(Err(error)) => self.fail(row, error),
                Err(panic) => self.fail(row, RowError::Panicked(panic)),
            };
            settled.push((share, outcome));
        }
        settled
    }

    /// Forgets a failed row's sequence.
    fn fail(&mut self, row: &Row, error: RowError) -> Outcome {
        self.sequences.remove(SequenceKey::of(row));
        Outcome::Done(Err(error))
    }
}
