//! Values: what an edge carries. Tensors are leases: their bytes are released when the last clone is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mstar_kernels::Tensor;

/// Counts the tensors and bytes alive on one rank.
#[derive(Debug)]
pub struct Gauge {
    rank: Box<str>,
    live: AtomicU64,
    bytes: AtomicU64,
}

/// A lease of a tensor on its home rank; cloning shares it, dropping the last clone releases the bytes.
#[derive(Clone, Debug)]
pub struct TensorRef(Arc<Lease>);

#[derive(Debug)]
struct Lease {
    tensor: Tensor,
    bytes: u64,
    gauge: Arc<Gauge>,
}

/// What an edge carries. Cloning is cheap: every variant shares its bytes.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor on a rank.
    Tensor(TensorRef),
    /// Mono audio: float32 samples of shape `[n]` in -1..1.
    Audio {
        /// The samples.
        samples: TensorRef,
        /// Samples per second.
        sample_rate: u32,
    },
    /// UTF-8 text.
    Text(Arc<str>),
    /// Token ids.
    Tokens(Arc<[u32]>),
    /// Small structured values: chat messages, timestamps, log-probabilities.
    Json(Arc<serde_json::Value>),
    /// Raw bytes, such as an uploaded file.
    Bytes(Bytes),
}

// --- impl Gauge ---

impl Gauge {
    /// Returns a gauge for the rank of this name.
    pub fn new(rank: &str) -> Arc<Self> {
        Arc::new(Self { rank: rank.into(), live: AtomicU64::new(0), bytes: AtomicU64::new(0) })
    }

    /// Returns the rank's name.
    pub fn rank(&self) -> &str {
        &self.rank
    }

    /// Returns how many leased tensors are alive.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns how many bytes they hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

// --- impl TensorRef ---

impl TensorRef {
    /// Leases a tensor on the rank that `gauge` counts for.
    pub fn lease(tensor: Tensor, gauge: &Arc<Gauge>) -> Self {
        let bytes = tensor.byte_len() as u64;
        gauge.live.fetch_add(1, Ordering::Relaxed);
        gauge.bytes.fetch_add(bytes, Ordering::Relaxed);
        Self(Arc::new(Lease { tensor, bytes, gauge: Arc::clone(gauge) }))
    }

    /// Returns the tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.0.tensor
    }

    /// Returns the gauge of the tensor's home rank.
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.0.gauge
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.gauge.live.fetch_sub(1, Ordering::Relaxed);
        self.gauge.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// --- impl Value ---

impl Value {
    /// Returns a text value.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Returns a value of one token.
    pub fn token(token: u32) -> Self {
        Self::Tokens(Arc::new([token]))
    }

    /// Returns an audio value over samples of shape `[n]`.
    pub fn audio(samples: TensorRef, sample_rate: u32) -> Self {
        Self::Audio { samples, sample_rate }
    }

    /// Returns a structured value.
    pub fn json(value: serde_json::Value) -> Self {
        Self::Json(Arc::new(value))
    }

    /// Returns the number of bytes the value stands for: what recovery counts per modality.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Tensor(t) | Self::Audio { samples: t, .. } => t.tensor().byte_len() as u64,
            Self::Text(text) => text.len() as u64,
            Self::Tokens(tokens) => tokens.len() as u64 * 4,
            Self::Json(json) => json.to_string().len() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the value without its first `n` bytes, or nothing when no byte remains.
    ///
    /// Text is cut at the next character boundary, audio at a sample; a structured value or tensor is kept whole
    /// unless all of it is skipped.
    pub fn skip_bytes(&self, n: u64) -> Option<Self> {
        if n == 0 {
            return Some(self.clone());
        }
        if n >= self.byte_len() {
            return None;
        }
        let n = usize::try_from(n).ok()?;
        match self {
            Self::Text(text) => {
                let at = (n..text.len()).find(|&i| text.is_char_boundary(i))?;
                Some(Self::text(&text[at..]))
            }
            Self::Audio { samples, sample_rate } => {
                let rest = samples.tensor().rows(n / 4..samples.tensor().len()).ok()?;
                Some(Self::audio(TensorRef::lease(rest, samples.gauge()), *sample_rate))
            }
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.slice(n..))),
            Self::Tokens(tokens) => Some(Self::Tokens(tokens[n / 4..].into())),
            Self::Tensor(_) | Self::Json(_) => Some(self.clone()),
        }
    }

    /// Returns how long it sounds, when the value is audio.
    pub fn duration(&self) -> Option<Duration> {
        let Self::Audio { samples, sample_rate } = self else { return None };
        Some(Duration::from_secs_f64(samples.tensor().len() as f64 / f64::from((*sample_rate).max(1))))
    }

    /// Returns the text, when the value is text.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the token ids, when the value is tokens.
    pub fn as_tokens(&self) -> Option<&[u32]> {
        if let Self::Tokens(tokens) = self { Some(tokens) } else { None }
    }

    /// Returns the tensor, when the value is a tensor or audio.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(t) | Self::Audio { samples: t, .. } => Some(t.tensor()),
            _ => None,
        }
    }

    /// Returns the structured value, when it is one.
    pub fn as_json(&self) -> Option<&serde_json::Value> {
        if let Self::Json(json) = self { Some(json) } else { None }
    }
}
