//! `POST /v1/audio/speech`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mstar_contract::{ClientEvent, Emission, Message, Part, Role, Task, Value as Emitted};
use mstar_graph::Modality;
use mstar_media::{AudioFormat, encode, streaming_wav_header};
use serde_json::{Value, json};

use crate::body::read_json;
use crate::call::{BodyWriter, Call, Wanted, event, label, streamed};
use crate::fields::Fields;
use crate::wire::{base64, pcm16};
use crate::{ApiError, Gateway};

/// Longest text to speak, in characters.
const MAX_CHARS: usize = 100_000;

struct SpeechCall {
    model: Option<String>,
    input: String,
    format: String,
    sse: bool,
    seed: Option<u64>,
    options: BTreeMap<String, Value>,
}

/// Speaks a text.
pub async fn speak(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let body = read_json(request, gateway.limits.body_bytes).await?;
    let speech = read_speech(&body)?;
    let served = gateway.served(speech.model.as_deref())?;
    let wanted = Wanted {
        id: headers.get("x-request-id").and_then(|v| v.to_str().ok()).map(str::to_owned),
        task: Task::Speak,
        messages: vec![Message { role: Role::User, parts: vec![Part::Text(speech.input.as_str().into())] }],
        outputs: BTreeSet::from([Modality::Audio]),
        seed: speech.seed,
        options: speech.options,
        ..Wanted::default()
    };
    let call = Call::begin(&gateway, served, &headers, wanted).await?;
    let (id, trace) = (Arc::clone(call.id()), call.trace());
    let mut response = match (speech.sse, speech.format.as_str()) {
        (true, _) => streamed("text/event-stream", move |writer| write_events(writer, call)),
        (false, "wav") => streamed("audio/wav", move |writer| write_audio(writer, call, true)),
        (false, "pcm") => streamed("audio/pcm", move |writer| write_audio(writer, call, false)),
        (false, _) => flac(call).await?,
    };
    label(&mut response, &id, trace);
    Ok(response)
}

fn read_speech(body: &Value) -> Result<SpeechCall, ApiError> {
    let fields = Fields::new("", body)?;
    let input = fields.required_text("input")?.to_owned();
    if input.chars().count() > MAX_CHARS {
        return Err(ApiError::field("input", format!("has more than {MAX_CHARS} characters")));
    }
    if input.trim().is_empty() {
        return Err(ApiError::field("input", "is empty"));
    }
    let mut options = BTreeMap::new();
    if let Some(voice) = fields.text("voice")? {
        options.insert("voice".to_owned(), json!(voice));
    }
    if fields.number("speed", 0.25..=4.0)?.is_some()
        && let Some(speed) = fields.raw("speed")
    {
        options.insert("speed".to_owned(), speed.clone());
    }
    let sse = fields.word("stream_format", &["audio", "sse"])? == Some("sse");
    let formats: &[&str] = if sse { &["pcm", "wav"] } else { &["wav", "pcm", "flac"] };
    let call = SpeechCall {
        model: fields.text("model")?.map(str::to_owned),
        input,
        format: fields.word("response_format", formats)?.unwrap_or("wav").to_owned(),
        sse,
        seed: fields.whole("seed", 0..=u64::MAX)?,
        options,
    };
    fields.finish()?;
    Ok(call)
}

fn audio_of(emission: &Emission) -> Option<(&[f32], u32)> {
    match &emission.value {
        Emitted::Audio { samples, sample_rate } => Some((samples.tensor().f32s(), *sample_rate)),
        _ => None,
    }
}

async fn write_audio(writer: BodyWriter, mut call: Call, wav: bool) {
    let mut header_due = wav;
    loop {
        let next = tokio::select! {
            next = call.next() => next,
            () = writer.closed() => return,
        };
        match next {
            ClientEvent::Emitted(emission) => {
                let Some((samples, sample_rate)) = audio_of(&emission) else { continue };
                let mut piece = if header_due { streaming_wav_header(sample_rate) } else { Vec::new() };
                header_due = false;
                piece.extend(pcm16(samples));
                if !writer.send(piece).await {
                    return;
                }
            }
            ClientEvent::Done(_) => return,
            ClientEvent::Failed(failure) => {
                tracing::warn!(error = %failure, "speech broke off");
                return writer.abort().await;
            }
        }
    }
}

async fn write_events(writer: BodyWriter, mut call: Call) {
    loop {
        let next = tokio::select! {
            next = call.next() => next,
            () = writer.closed() => return,
        };
        let (data, ended) = match next {
            ClientEvent::Emitted(emission) => match audio_of(&emission) {
                Some((samples, _)) => {
                    (json!({"type": "speech.audio.delta", "audio": base64(&pcm16(samples))}), false)
                }
                None => continue,
            },
            ClientEvent::Done(summary) => {
                let usage = json!({
                    "input_tokens": summary.usage.prompt_tokens, "output_tokens": summary.usage.completion_tokens,
                    "total_tokens": summary.usage.prompt_tokens + summary.usage.completion_tokens,
                });
                (json!({"type": "speech.audio.done", "usage": usage}), true)
            }
            ClientEvent::Failed(failure) => (ApiError::from(failure).json(), true),
        };
        if !writer.send(event(&data)).await || ended {
            return;
        }
    }
}

async fn flac(call: Call) -> Result<Response, ApiError> {
    let (emissions, _) = call.collect().await?;
    let mut samples = Vec::new();
    let mut sample_rate = 0;
    for (piece, rate) in emissions.iter().filter_map(audio_of) {
        samples.extend_from_slice(piece);
        sample_rate = rate;
    }
    let internal = |message: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message);
    if sample_rate == 0 {
        return Err(internal("the model gave no audio".to_owned()));
    }
    let bytes = encode(&samples, sample_rate, AudioFormat::Flac).map_err(|error| internal(format!("flac: {error}")))?;
    let mut response = bytes.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("audio/flac"));
    Ok(response)
}
