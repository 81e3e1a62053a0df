//! A vocoder of sorts: audio that depends on every byte spoken so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use mstar_contract::{Compute, ComputeCx, ItemChunk, RequestKey, Row, RowError, RowOutput};
use mstar_graph::OpName;
use mstar_kernels::Tensor;

use super::faults::{FaultPlan, Reach, provoke};
use crate::random;

/// Speaks a stream of texts: op `speak`, chunks at `items`, audio at `audio`. Every byte becomes a few samples that
/// depend on all bytes before it, so that lost, repeated or reordered items are heard.
#[derive(Debug)]
pub struct FakeVocoder {
    faults: Arc<FaultPlan>,
    streams: BTreeMap<(RequestKey, u8), Stream>,
}

/// One request's stream as far as it was spoken.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    items: u64,
    hash: u64,
}

// --- impl FakeVocoder ---

impl FakeVocoder {
    /// Samples per second.
    pub const SAMPLE_RATE: u32 = 24_000;
    /// Samples per byte of text.
    pub const SAMPLES_PER_BYTE: usize = 8;
    /// Samples after the last byte.
    pub const TAIL: usize = 32;

    /// Returns a vocoder that draws its faults from a plan.
    pub fn new(faults: Arc<FaultPlan>) -> Self {
        Self { faults, streams: BTreeMap::new() }
    }

    /// Returns what a row makes of its stream, and the stream as it stands then.
    fn speak(&self, row: &Row, cx: &ComputeCx<'_>) -> Result<(RowOutput, Stream), RowError> {
        provoke(row)?;
        let mut stream = self.streams.get(&(row.key, row.params.label)).copied().unwrap_or_default();
        let samples = stream.take(row.chunk("items")?)?;
        let mut output = RowOutput::default();
        if !samples.is_empty() {
            let count = samples.len();
            output.push("audio", cx.audio(Tensor::from_f32(samples, [count])?, Self::SAMPLE_RATE));
        }
        Ok((output, stream))
    }
}

impl Compute for FakeVocoder {
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        self.faults.strike(Reach::Op);
        let spoken: Vec<_> = rows.iter().map(|row| self.speak(row, cx)).collect();
        // Nothing panics from here on, so that a batch is spoken as a whole or not at all.
        let commit = |(row, spoken): (&Row, Result<(RowOutput, Stream), RowError>)| {
            spoken.map(|(output, stream)| {
                self.streams.insert((row.key, row.params.label), stream);
                output
            })
        };
        rows.iter().zip(spoken).map(commit).collect()
    }

    fn retire(&mut self, key: RequestKey) {
        self.streams.retain(|(held, _), _| held.id != key.id || held.attempt > key.attempt);
    }

    fn reset(&mut self) {
        self.streams.clear();
    }

    fn held(&self) -> usize {
        self.streams.len()
    }
}

// --- impl Stream ---

impl Stream {
    /// Speaks what is new in a chunk.
    fn take(&mut self, chunk: &ItemChunk) -> Result<Vec<f32>, RowError> {
        let first_new = chunk.start + chunk.context as u64;
        if first_new != self.items {
            let message = format!("the stream stands at item {}, the chunk begins at {first_new}", self.items);
            return Err(RowError::Internal(message));
        }
        let mut samples = Vec::new();
        for item in &chunk.items[chunk.context..] {
            let text = item.as_text().ok_or_else(|| RowError::Internal("an item is not text".to_owned()))?;
            text.bytes().for_each(|byte| self.utter(u64::from(byte), FakeVocoder::SAMPLES_PER_BYTE, &mut samples));
            self.items += 1;
        }
        if chunk.last {
            self.utter(256, FakeVocoder::TAIL, &mut samples);
        }
        Ok(samples)
    }

    fn utter(&mut self, symbol: u64, count: usize, samples: &mut Vec<f32>) {
        self.hash = random::mix(self.hash ^ symbol);
        samples.extend((0..count as u64).map(|i| (random::unit(self.hash, i) - 0.5) as f32));
    }
}
