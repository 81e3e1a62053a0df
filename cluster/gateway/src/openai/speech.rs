//! `POST /v1/audio/speech`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mstar_contract::{ClientEvent, Emission, Message, Part, Role, Task, Value as Emitted};
use mstar_graph::Modality;
use mstar_media::{AudioFormat, encode, pcm16_bytes, wav_header};
use serde_json::{Value, json};

use crate::body::read_json;
use crate::call::{Call, Wanted};
use crate::fields::Fields;
use crate::label::chosen_id;
use crate::streamed::{BodyWriter, event, streamed};
use crate::wire::{base64, samples_of};
use crate::{ApiError, Gateway};

/// Longest text to speak, in characters.
const MAX_CHARS: usize = 100_000;

struct SpeechCall {
    model: Option<String>,
    input: String,
    format: AudioFormat,
    sse: bool,
    seed: Option<u64>,
    options: BTreeMap<String, Value>,
}

/// Speaks a text.
pub(crate) async fn speak(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (body, held) = read_json(request, &gateway).await?;
    let speech = read_speech(&body)?;
    drop(body);
    let served = gateway.served(speech.model.as_deref())?;
    let wanted = Wanted {
        id: chosen_id(&headers),
        task: Task::Speak,
        messages: vec![Message { role: Role::User, parts: vec![Part::Text(speech.input.as_str().into())] }],
        outputs: BTreeSet::from([Modality::Audio]),
        seed: speech.seed,
        options: speech.options,
        body: Some(held),
        ..Wanted::default()
    };
    let call = Call::begin(&gateway, served, &headers, wanted).await?;
    let labels = call.labels();
    let (format, stall) = (speech.format, gateway.limits.reader_stall);
    Ok(labels(match format {
        AudioFormat::Flac => flac(call).await?,
        _ if speech.sse => streamed("text/event-stream", stall, move |writer| write_events(writer, call, format)),
        _ => streamed(format.content_type(), stall, move |writer| write_audio(writer, call, format)),
    }))
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
    // A FLAC file tells its length at the beginning: it cannot be streamed.
    let formats: &[&str] = if sse { &["wav", "pcm"] } else { &["wav", "pcm", "flac"] };
    let format = match fields.word("response_format", formats)? {
        Some("pcm") => AudioFormat::Pcm,
        Some("flac") => AudioFormat::Flac,
        _ => AudioFormat::Wav,
    };
    let call = SpeechCall {
        model: fields.text("model")?.map(str::to_owned),
        input,
        format,
        sse,
        seed: fields.whole("seed", 0..=u64::MAX)?,
        options,
    };
    fields.finish()?;
    Ok(call)
}

fn audio_of(emission: &Emission) -> Option<(&[f32], u32)> {
    match &emission.value {
        Emitted::Audio { samples, sample_rate } => Some((samples_of(samples), *sample_rate)),
        _ => None,
    }
}

/// Returns the samples as they go into the stream, after the header when they are the first.
fn packed(samples: &[f32], sample_rate: u32, format: AudioFormat, first: bool) -> Vec<u8> {
    let mut piece = Vec::new();
    if first && format == AudioFormat::Wav {
        piece.extend(wav_header(sample_rate, None));
    }
    piece.extend(pcm16_bytes(samples));
    piece
}

async fn write_audio(writer: BodyWriter, mut call: Call, format: AudioFormat) {
    let mut first = true;
    while let Some(next) = writer.next_of(&mut call).await {
        match next {
            ClientEvent::Emitted(emission) => {
                let Some((samples, sample_rate)) = audio_of(&emission) else { continue };
                if !writer.send(packed(samples, sample_rate, format, first)).await {
                    return;
                }
                first = false;
            }
            ClientEvent::Done(_) => return writer.finish().await,
            ClientEvent::Failed(failure) => {
                // There is no place for an error among samples: the body breaks off.
                tracing::warn!(request.id = &**call.id(), error = %failure, "speech broke off");
                return;
            }
        }
    }
}

async fn write_events(writer: BodyWriter, mut call: Call, format: AudioFormat) {
    let mut first = true;
    while let Some(next) = writer.next_of(&mut call).await {
        let (data, ended) = match next {
            ClientEvent::Emitted(emission) => match audio_of(&emission) {
                Some((samples, sample_rate)) => {
                    let audio = base64(&packed(samples, sample_rate, format, first));
                    first = false;
                    (json!({"type": "speech.audio.delta", "audio": audio}), false)
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
            ClientEvent::Failed(failure) => (call.error(failure).json(), true),
        };
        if !writer.send(event(&data)).await {
            return;
        }
        if ended {
            return writer.finish().await;
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
    let bytes = encode(AudioFormat::Flac, &samples, sample_rate).map_err(|error| internal(format!("flac: {error}")))?;
    let mut response = bytes.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("audio/flac"));
    Ok(response)
}
