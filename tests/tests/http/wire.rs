//! Reads answers: NDJSON lines and server-sent events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mstar_tests::house::Outcome;
use reqwest::Response;
use serde_json::Value;

/// A line of the native stream, or an entry of the native document.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) modality: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) metadata: Value,
}

/// Reads NDJSON lines.
pub(crate) fn lines(body: &[u8]) -> Outcome<Vec<Line>> {
    let text = std::str::from_utf8(body)?;
    text.lines().map(|line| line_of(&serde_json::from_str(line)?)).collect()
}

fn line_of(value: &Value) -> Outcome<Line> {
    let modality = value["modality"].as_str().ok_or("a line has no modality")?.to_owned();
    Ok(Line { modality, bytes: decode(&value["data"])?, metadata: value["metadata"].clone() })
}

/// Decodes a base64 string.
pub(crate) fn decode(data: &Value) -> Outcome<Vec<u8>> {
    Ok(STANDARD.decode(data.as_str().ok_or("data is no string")?)?)
}

/// Joins the bytes of a modality.
pub(crate) fn joined(lines: &[Line], modality: &str) -> Vec<u8> {
    lines.iter().filter(|line| line.modality == modality).flat_map(|line| line.bytes.clone()).collect()
}

/// Reads server-sent events; `[DONE]` becomes a JSON string.
pub(crate) fn events(body: &str) -> Outcome<Vec<Value>> {
    let data = body.split("\n\n").filter(|event| !event.is_empty());
    data.map(|event| {
        let data = event.strip_prefix("data: ").ok_or_else(|| format!("no data: {event:?}"))?;
        Ok(if data == "[DONE]" { Value::from(data) } else { serde_json::from_str(data)? })
    })
    .collect()
}

/// Reads a body to its end, or to where it breaks off.
pub(crate) async fn body_and_end(mut response: Response) -> (Vec<u8>, Result<(), reqwest::Error>) {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return (body, Ok(())),
            Err(error) => return (body, Err(error)),
        }
    }
}

/// Returns a header of a response.
pub(crate) fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Returns a wav file of a tone this long.
pub(crate) fn tone(seconds: f32) -> Vec<u8> {
    let samples: Vec<f32> = (0..(16_000.0 * seconds) as usize).map(|i| (i as f32 * 0.1).sin() * 0.5).collect();
    mstar_media::encode(mstar_media::AudioFormat::Wav, &samples, 16_000).expect("wav takes any samples")
}
