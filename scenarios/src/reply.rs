//! What a client has in the end, and how many requests run side by side.

use std::collections::BTreeMap;

use mstar_actors::ClientStream;
use mstar_contract::{ClientEvent, Emission, Failure, FailureKind, FinishReason, Usage, Value};
use tokio::task::JoinSet;

/// What a client has in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// The bytes of each output, by modality and port. Outputs of a request may come interleaved in many ways.
    pub(crate) outputs: BTreeMap<String, Vec<u8>>,
    /// Samples per second of what was heard.
    pub(crate) sample_rate: u32,
    /// Tokens read and written.
    pub(crate) usage: Usage,
    /// In how many pieces it came.
    pub(crate) pieces: usize,
    /// Why generation ended.
    pub(crate) finish: Option<FinishReason>,
}

// --- impl Reply ---

impl Reply {
    /// Reads a request to its end.
    pub(crate) async fn read(stream: ClientStream) -> Result<Self, Failure> {
        let whole = Self::read_some(stream, usize::MAX).await?;
        whole.ok_or_else(|| Failure::new(FailureKind::Internal, "the reply has no end"))
    }

    /// Reads a request to its end, unless it comes in more than so many pieces: then its client goes away.
    pub(crate) async fn read_some(mut stream: ClientStream, most: usize) -> Result<Option<Self>, Failure> {
        let mut reply = Self::default();
        loop {
            match stream.next().await {
                Some(ClientEvent::Emitted(_)) if reply.pieces == most => return Ok(None),
                Some(ClientEvent::Emitted(emission)) => reply.take(&emission),
                Some(ClientEvent::Done(summary)) => {
                    (reply.usage, reply.finish) = (summary.usage, summary.finish);
                    return Ok(Some(reply));
                }
                Some(ClientEvent::Failed(failure)) => return Err(failure),
                None => return Err(Failure::new(FailureKind::Internal, "the stream ended without an end")),
            }
        }
    }

    fn take(&mut self, emission: &Emission) {
        self.pieces += 1;
        let bytes = self.outputs.entry(format!("{} {}", emission.modality, emission.port)).or_default();
        match &emission.value {
            Value::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Value::Audio { samples, sample_rate } => {
                self.sample_rate = *sample_rate;
                bytes.extend_from_slice(samples.tensor().bytes());
            }
            Value::Tensor(tensor) => bytes.extend_from_slice(tensor.tensor().bytes()),
            Value::Tokens(tokens) => tokens.iter().for_each(|token| bytes.extend_from_slice(&token.to_le_bytes())),
            Value::Json(json) => bytes.extend_from_slice(json.to_string().as_bytes()),
            Value::Bytes(more) => bytes.extend_from_slice(more),
        }
    }

    /// Returns the audio, sample by sample.
    pub(crate) fn samples(&self) -> Vec<f32> {
        let audio = self.outputs.iter().filter(|(name, _)| name.starts_with("audio"));
        let quads = audio.flat_map(|(_, bytes)| bytes.chunks_exact(4));
        quads.map(|quad| f32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]])).collect()
    }

    /// Returns whether there is anything in it.
    pub(crate) fn says_something(&self) -> bool {
        self.outputs.values().any(|bytes| !bytes.is_empty())
    }

    /// Says in what a reply is not this one, if in anything.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let names = self.outputs.keys().chain(other.outputs.keys());
        let empty = Vec::new();
        let mut differences = names.filter_map(|name| {
            let of = |reply: &'_ Self| reply.outputs.get(name).cloned().unwrap_or_else(|| empty.clone());
            let (ours, theirs) = (of(self), of(other));
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            let at = at.or_else(|| (ours.len() != theirs.len()).then(|| ours.len().min(theirs.len())))?;
            Some(format!("{name} from byte {at} on ({} and {} bytes)", ours.len(), theirs.len()))
        });
        differences.next()
    }
}

/// Serves requests `0..count`, at most `at_once` at a time, and hands each outcome to `take`.
pub(crate) async fn side_by_side<T, F>(
    count: usize,
    at_once: usize,
    mut serve: impl FnMut(usize) -> F,
    mut take: impl FnMut(usize, T),
) where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut begin = |running: &mut JoinSet<(usize, T)>, n: usize| {
        let served = serve(n);
        running.spawn(async move { (n, served.await) });
    };
    let mut next = at_once.max(1).min(count);
    (0..next).for_each(|n| begin(&mut running, n));
    while let Some(ended) = running.join_next().await {
        if let Ok((n, outcome)) = ended {
            take(n, outcome);
        }
        if next < count {
            begin(&mut running, next);
            next += 1;
        }
    }
}
