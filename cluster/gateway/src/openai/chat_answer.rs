//! Packs what a request emits into chat completions and their chunks.

use axum::http::StatusCode;
use mstar_contract::{Emission, FinishReason, Usage, Value as Emitted};
use mstar_graph::Modality;
use mstar_media::{AudioFormat, encode, pcm16_bytes};
use serde_json::{Value, json};

use super::chat_parse::ChatCall;
use super::chunk::{Chunk, ChunkChoice, Delta};
use crate::ApiError;
use crate::streamed::event;
use crate::wire::{base64, samples_of};

/// What every document of one call shares.
#[derive(Clone, Debug)]
pub(super) struct Head {
    id: String,
    created: u64,
    model: String,
    speaks: bool,
    audio_format: String,
    logprobs: bool,
}

/// The port that carries token log-probabilities.
const DETAIL_PORT: &str = "detail";

/// An answer being collected.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    samples: Vec<f32>,
    sample_rate: u32,
    logprobs: Vec<Value>,
}

impl Head {
    pub(super) fn new(model: &str, chat: &ChatCall) -> Self {
        Self {
            id: format!("chatcmpl-{}", uuid::Uuid::new_v4().simple()),
            created: unix_seconds(),
            model: model.to_owned(),
            speaks: chat.outputs.contains(&Modality::Audio),
            audio_format: chat.audio_format.clone(),
            logprobs: chat.sampling.logprobs.is_some(),
        }
    }

    /// Returns a whole completion.
    pub(super) fn completion(&self, choices: Vec<Value>, usage: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": choices, "usage": usage,
        })
    }

    /// Returns the event with a chunk of a stream.
    pub(super) fn chunk(&self, choices: &[ChunkChoice<'_>], usage: Option<Value>) -> String {
        let (id, model, created) = (&self.id, &self.model, self.created);
        event(&Chunk { id, object: "chat.completion.chunk", created, model, choices, usage })
    }

    /// Returns what an emission adds to a stream.
    pub(super) fn choice<'a>(&self, index: u64, emission: &'a Emission) -> Option<ChunkChoice<'a>> {
        let delta = match (&emission.value, emission.modality) {
            (Emitted::Text(text), Modality::Text) if self.speaks => {
                Delta::Other(json!({"audio": {"id": self.audio_id(), "transcript": &**text}}))
            }
            (Emitted::Text(text), Modality::Text) => Delta::Content { content: text },
            (Emitted::Audio { samples, .. }, _) => {
                let data = base64(&pcm16_bytes(samples_of(samples)));
                Delta::Other(json!({"audio": {"id": self.audio_id(), "data": data}}))
            }
            (Emitted::Json(detail), Modality::Detail) if self.logprobs && emission.port.as_str() == DETAIL_PORT => {
                let logprobs = Some(json!({"content": detail["logprobs"], "refusal": null}));
                return Some(ChunkChoice { logprobs, ..ChunkChoice::new(index, Delta::Other(json!({}))) });
            }
            _ => return None,
        };
        Some(ChunkChoice::new(index, delta))
    }

    /// Returns the delta that ends an answer: what was spoken can't be asked for again after a while.
    pub(super) fn last_delta(&self) -> Delta<'static> {
        let spoken = || json!({"audio": {"id": self.audio_id(), "expires_at": self.expires_at()}});
        Delta::Other(if self.speaks { spoken() } else { json!({}) })
    }

    fn expires_at(&self) -> u64 {
        self.created + 3600
    }

    fn audio_id(&self) -> String {
        self.id.replace("chatcmpl", "audio")
    }
}

impl Answer {
    pub(super) fn take(&mut self, emission: &Emission) {
        match (&emission.value, emission.modality) {
            (Emitted::Text(text), Modality::Text) => self.text.push_str(text),
            (Emitted::Audio { samples, sample_rate }, _) => {
                self.sample_rate = *sample_rate;
                self.samples.extend_from_slice(samples_of(samples));
            }
            (Emitted::Json(detail), Modality::Detail) if emission.port.as_str() == DETAIL_PORT => {
                self.logprobs.extend(detail["logprobs"].as_array().into_iter().flatten().cloned());
            }
            _ => {}
        }
    }

    /// Returns the finished choice.
    pub(super) fn into_choice(
        self,
        index: usize,
        head: &Head,
        finish: Option<FinishReason>,
    ) -> Result<Value, ApiError> {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if head.speaks {
            let bytes = match head.audio_format.as_str() {
                "pcm16" => pcm16_bytes(&self.samples),
                name => {
                    let format = if name == "flac" { AudioFormat::Flac } else { AudioFormat::Wav };
                    encode(format, &self.samples, self.sample_rate.max(1)).map_err(|error| {
                        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("audio: {error}"))
                    })?
                }
            };
            message["audio"] = json!({
                "id": head.audio_id(), "data": base64(&bytes), "transcript": self.text,
                "expires_at": head.expires_at(),
            });
            message["content"] = Value::Null;
        }
        let logprobs = head.logprobs.then(|| json!({"content": self.logprobs, "refusal": null}));
        Ok(json!({
            "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_name(finish),
        }))
    }
}

/// Returns OpenAI's word for why generation ended.
pub(super) fn finish_name(finish: Option<FinishReason>) -> &'static str {
    match finish {
        Some(FinishReason::Length) => "length",
        Some(FinishReason::Stop) | None => "stop",
    }
}

/// Returns the usage as OpenAI counts it.
pub(super) fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}

#[expect(clippy::disallowed_methods, reason = "`created` is wall-clock time by OpenAI's definition")]
fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
