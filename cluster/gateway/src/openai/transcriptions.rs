//! `POST /v1/audio/transcriptions`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use mstar_contract::{ClientEvent, Emission, Media, Message, Part, Role, Summary, Task, Value as Emitted};
use mstar_graph::Modality;
use serde_json::{Value, json};

use crate::body::{Form, read_form};
use crate::call::{Call, Wanted};
use crate::label::chosen_id;
use crate::streamed::{BodyWriter, DONE_EVENT, event, streamed};
use crate::{ApiError, Gateway};

/// The form's fields.
const FIELDS: [&str; 9] = [
    "model",
    "language",
    "prompt",
    "response_format",
    "temperature",
    "stream",
    "timestamp_granularities[]",
    "timestamp_granularities",
    "seed",
];
/// How the answer may be packed.
const FORMATS: [&str; 5] = ["json", "text", "verbose_json", "srt", "vtt"];
/// The port that carries segments with their times.
const SEGMENT_PORT: &str = "segments";

/// Writes down what is said in a file.
pub(crate) async fn transcribe(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (form, held) = read_form(request, &gateway).await?;
    form.refuse_unknown(&FIELDS, &["file"])?;
    let format = form.one("response_format")?.unwrap_or("json").to_owned();
    if !FORMATS.contains(&format.as_str()) {
        let message = format!("{format:?} is not one of {}", FORMATS.join(", "));
        return Err(ApiError::field("response_format", message));
    }
    let stream = form.flag("stream")?.unwrap_or(false);
    if stream && !matches!(format.as_str(), "json" | "text") {
        return Err(ApiError::field("stream", "needs response_format json or text"));
    }
    let served = gateway.served(form.one("model")?)?;
    let timestamps = !matches!(format.as_str(), "json" | "text");
    let mut wanted = read_wanted(form, timestamps)?;
    wanted.id = chosen_id(&headers);
    wanted.body = Some(held);
    let call = Call::begin(&gateway, served, &headers, wanted).await?;
    let labels = call.labels();
    Ok(labels(if stream {
        streamed("text/event-stream", gateway.limits.reader_stall, move |writer| write_events(writer, call))
    } else {
        let (emissions, summary) = call.collect().await?;
        document(&emissions, &summary, &format)
    }))
}

fn read_wanted(mut form: Form, timestamps: bool) -> Result<Wanted, ApiError> {
    let mut wanted = Wanted { task: Task::Transcribe, ..Wanted::default() };
    wanted.outputs = BTreeSet::from([Modality::Text]);
    if timestamps {
        wanted.outputs.insert(Modality::Detail);
        wanted.options.insert("timestamps".to_owned(), json!(true));
    }
    for name in ["language", "prompt"] {
        if let Some(value) = form.one(name)?.filter(|value| !value.is_empty()) {
            wanted.options.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(text) = form.one("temperature")? {
        let number: f32 = text.parse().map_err(|_| ApiError::field("temperature", "must be a number"))?;
        if !(0.0..=1.0).contains(&number) {
            return Err(ApiError::field("temperature", format!("{number} is outside 0 to 1")));
        }
        wanted.sampling.temperature = Some(number);
    }
    for name in ["timestamp_granularities[]", "timestamp_granularities"] {
        let values = form.fields.get(name).into_iter().flatten();
        if let Some(other) = values.into_iter().find(|value| *value != "segment") {
            return Err(ApiError::field(name, format!("{other:?} is not one of segment")));
        }
    }
    if let Some(text) = form.one("seed")? {
        wanted.seed = Some(text.parse().map_err(|_| ApiError::field("seed", "must be a whole number"))?);
    }
    if form.files.len() != 1 {
        return Err(ApiError::field("file", format!("one file is needed, {} came", form.files.len())));
    }
    let file = form.files.remove(0);
    wanted.media = vec![Media { modality: Modality::Audio, bytes: file.bytes, field: "file".to_owned() }];
    wanted.messages = vec![Message { role: Role::User, parts: vec![Part::Media(0)] }];
    Ok(wanted)
}

fn text_of(emission: &Emission) -> Option<&str> {
    if emission.modality == Modality::Text { emission.value.as_text() } else { None }
}

async fn write_events(writer: BodyWriter, mut call: Call) {
    let mut text = String::new();
    while let Some(next) = writer.next_of(&mut call).await {
        match next {
            ClientEvent::Emitted(emission) => {
                let Some(piece) = text_of(&emission) else { continue };
                text.push_str(piece);
                if !writer.send(event(&json!({"type": "transcript.text.delta", "delta": piece}))).await {
                    return;
                }
            }
            ClientEvent::Done(summary) => {
                let done = json!({"type": "transcript.text.done", "text": text.trim(), "usage": usage(&summary)});
                if writer.send(event(&done)).await && writer.send(DONE_EVENT).await {
                    writer.finish().await;
                }
                return;
            }
            ClientEvent::Failed(failure) => {
                writer.send(event(&call.error(failure).json())).await;
                return writer.finish().await;
            }
        }
    }
}

fn usage(summary: &Summary) -> Value {
    let usage = summary.usage;
    json!({
        "type": "tokens", "input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}

fn document(emissions: &[Emission], summary: &Summary, format: &str) -> Response {
    let text: String = emissions.iter().filter_map(text_of).collect();
    let text = text.trim();
    let mut segments: Vec<Value> = Vec::new();
    let mut about = json!({});
    for emission in emissions.iter().filter(|e| e.port.as_str() == SEGMENT_PORT) {
        let Emitted::Json(detail) = &emission.value else { continue };
        segments.extend(detail["segments"].as_array().into_iter().flatten().cloned());
        about = (**detail).clone();
    }
    match format {
        "text" => plain("text/plain; charset=utf-8", format!("{text}\n")),
        "srt" => plain("application/x-subrip", subtitles(&segments, true)),
        "vtt" => plain("text/vtt; charset=utf-8", subtitles(&segments, false)),
        "verbose_json" => {
            let segments: Vec<Value> = segments.into_iter().enumerate().map(numbered).collect();
            Json(json!({
                "task": "transcribe", "language": about["language"], "duration": about["duration"], "text": text,
                "segments": segments, "usage": usage(summary),
            }))
            .into_response()
        }
        _ => Json(json!({"text": text, "usage": usage(summary)})).into_response(),
    }
}

fn numbered((index, mut segment): (usize, Value)) -> Value {
    segment["id"] = json!(index);
    segment
}

fn plain(content_type: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// Returns the segments as SubRip or WebVTT.
fn subtitles(segments: &[Value], srt: bool) -> String {
    let mut out = if srt { String::new() } else { "WEBVTT\n\n".to_owned() };
    let stamp = |seconds: f64| {
        let ms = (seconds * 1000.0).round().max(0.0) as u64;
        let mark = if srt { ',' } else { '.' };
        format!("{:02}:{:02}:{:02}{mark}{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
    };
    for (i, segment) in segments.iter().enumerate() {
        let (start, end) = (segment["start"].as_f64().unwrap_or(0.0), segment["end"].as_f64().unwrap_or(0.0));
        let text = segment["text"].as_str().unwrap_or_default().trim();
        if srt {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}", i + 1);
        }
        let _ = writeln!(out, "{} --> {}\n{text}\n", stamp(start), stamp(end));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_have_their_formats_times() {
        let segments = [
            json!({"start": 0.0, "end": 2.5, "text": " Hello."}),
            json!({"start": 3661.25, "end": 3662, "text": "Bye"}),
        ];
        assert_eq!(
            subtitles(&segments, true),
            "1\n00:00:00,000 --> 00:00:02,500\nHello.\n\n2\n01:01:01,250 --> 01:01:02,000\nBye\n\n"
        );
        assert!(subtitles(&segments, false).starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nHello.\n"));
    }
}
