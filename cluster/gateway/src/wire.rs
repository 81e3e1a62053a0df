//! How values look on the wire: bytes and metadata per modality.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mstar_contract::{Emission, TensorRef, Value};
use mstar_graph::Modality;
use mstar_media::pcm16_bytes;
use serde_json::json;

/// An emission as bytes for a client.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// How to read the bytes.
    pub modality: Modality,
    /// The bytes: UTF-8 text, 16-bit little-endian PCM, little-endian float32, or JSON.
    pub bytes: Vec<u8>,
    /// What a reader must know besides.
    pub metadata: serde_json::Value,
}

/// Packs an emission.
pub(crate) fn pack(emission: &Emission) -> Packed {
    let (bytes, metadata) = match &emission.value {
        Value::Text(text) => (text.as_bytes().to_vec(), json!({})),
        Value::Audio { samples, sample_rate } => {
            (pcm16_bytes(samples_of(samples)), json!({"sample_rate": sample_rate, "num_channels": 1}))
        }
        Value::Tensor(tensor) => {
            let floats = tensor.tensor().to_f32().expect("invariant: every host tensor converts to float32");
            let bytes = floats.f32s().unwrap_or_default().iter().flat_map(|x| x.to_le_bytes()).collect();
            (bytes, json!({"shape": tensor.tensor().dims(), "dtype": "float32"}))
        }
        Value::Json(value) => (value.to_string().into_bytes(), json!({"port": emission.port.as_str()})),
        Value::Tokens(tokens) => (tokens.iter().flat_map(|t| t.to_le_bytes()).collect(), json!({"dtype": "uint32"})),
        Value::Bytes(bytes) => (bytes.to_vec(), json!({})),
    };
    Packed { modality: emission.modality, bytes, metadata }
}

/// Returns the samples of an audio value.
pub(crate) fn samples_of(samples: &TensorRef) -> &[f32] {
    samples.tensor().f32s().expect("invariant: audio is float32")
}

/// Returns bytes as base64 text.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

impl Packed {
    /// Returns the line of the native stream, with its newline.
    pub(crate) fn line(&self) -> String {
        let line =
            json!({"modality": self.modality.to_string(), "data": base64(&self.bytes), "metadata": self.metadata});
        format!("{line}\n")
    }

    /// Returns the entry of the native document.
    pub(crate) fn entry(&self) -> serde_json::Value {
        json!({"data": base64(&self.bytes), "metadata": self.metadata})
    }
}
