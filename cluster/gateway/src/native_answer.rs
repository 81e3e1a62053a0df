//! Writes what a request emits as the native endpoint's stream or document.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mstar_contract::{ClientEvent, Emission, Summary};
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::call::Call;
use crate::idempotency::Owner;
use crate::streamed::BodyWriter;
use crate::wire::{base64, pack};

/// What a request with a chosen id emitted so far, for clients that attach to it.
struct Recording {
    owner: Option<Owner>,
    emissions: Vec<Emission>,
    bytes: u64,
}

/// Most bytes that are kept of a request for those who attach to it.
const MAX_RECORDED: u64 = 16 << 20;

impl Recording {
    fn take(&mut self, emission: &Emission) {
        self.bytes += emission.value.byte_len();
        if self.bytes <= MAX_RECORDED {
            if self.owner.is_some() {
                self.emissions.push(emission.clone());
            }
            return;
        }
        self.emissions.clear();
        if let Some(owner) = self.owner.take() {
            let message = "the answer is too long to be given twice";
            owner.finish(Err(ApiError::new(StatusCode::CONFLICT, "too_long_to_attach", message).at("request_id")));
        }
    }

    fn finish(self, end: Result<Summary, ApiError>) {
        if let Some(owner) = self.owner {
            owner.finish(end.map(|summary| (Arc::from(self.emissions), summary)));
        }
    }
}

/// Writes the stream: a line per emission; an error line and a broken body when it fails.
pub(crate) async fn write_stream(writer: BodyWriter, mut call: Call, owner: Option<Owner>) {
    let mut recording = Recording { owner, emissions: Vec::new(), bytes: 0 };
    while let Some(event) = writer.next_of(&mut call).await {
        match event {
            ClientEvent::Emitted(emission) => {
                recording.take(&emission);
                if !writer.send(pack(&emission).line()).await {
                    return;
                }
            }
            ClientEvent::Done(summary) => {
                recording.finish(Ok(summary));
                // The id is free before the client sees the end.
                drop(call);
                return writer.finish().await;
            }
            ClientEvent::Failed(failure) => {
                let error = call.error(failure);
                writer.send(error_line(&error)).await;
                return recording.finish(Err(error));
            }
        }
    }
}

/// Returns the document of a whole request.
pub(crate) async fn document(call: Call, owner: Option<Owner>) -> Result<Response, ApiError> {
    let id = Arc::clone(call.id());
    let collected = call.collect().await.map(|(emissions, summary)| (Arc::from(emissions), summary));
    if let Some(owner) = owner {
        owner.finish(collected.clone());
    }
    Ok(attached_document(&id, &collected?))
}

/// Returns the document of a request that has ended.
pub(crate) fn attached_document(id: &str, (emissions, summary): &(Arc<[Emission]>, Summary)) -> Response {
    let mut outputs: Map<String, Value> = Map::new();
    for emission in emissions.iter() {
        let packed = pack(emission);
        let entries = outputs.entry(packed.modality.to_string()).or_insert_with(|| json!([]));
        if let Value::Array(entries) = entries {
            entries.push(packed.entry());
        }
    }
    let usage = json!({
        "prompt_tokens": summary.usage.prompt_tokens, "completion_tokens": summary.usage.completion_tokens,
    });
    Json(json!({"request_id": id, "outputs": outputs, "usage": usage})).into_response()
}

/// Returns the stream of a request that has ended.
pub(crate) fn attached_stream((emissions, _): &(Arc<[Emission]>, Summary)) -> Response {
    let lines: String = emissions.iter().map(|emission| pack(emission).line()).collect();
    let mut response = Response::new(Body::from(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

fn error_line(error: &ApiError) -> String {
    let line = json!({
        "modality": "error", "data": base64(error.message.as_bytes()), "metadata": error.json()["error"],
    });
    format!("{line}\n")
}
