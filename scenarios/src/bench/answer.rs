//! Reads answers as they stream in, and notes when what came.

use std::time::Duration;

use serde_json::Value;

use super::listener::Piece;
use super::sample::Sample;

/// How an endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Server-sent events of chat completions.
    Chat,
    /// Server-sent events of a transcription, or one JSON document.
    Transcript,
    /// A wav file.
    Wav,
    /// A JSON object a line, as the native endpoint sends them.
    Lines,
}

/// An answer that is being read.
#[derive(Debug)]
pub(super) struct Answer {
    shape: Shape,
    sample: Sample,
    /// What does not make a whole line or a whole header yet.
    pending: Vec<u8>,
    /// Bytes of a second of audio, once a wav file has said it.
    byte_rate: f64,
    ended: bool,
}

/// Bytes of a wav file before its samples, as servers stream them.
const WAV_HEADER: usize = 44;
/// Where in it the bytes of a second stand.
const BYTE_RATE: std::ops::Range<usize> = 28..32;

// --- impl Answer ---

impl Answer {
    /// Returns an answer of which nothing came yet.
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, sample: Sample::default(), pending: Vec::new(), byte_rate: 0.0, ended: false }
    }

    /// Takes what came, and when.
    pub(super) fn take(&mut self, after: Duration, bytes: &[u8]) {
        if self.shape == Shape::Wav && self.byte_rate > 0.0 {
            return self.hear(after, bytes.len());
        }
        self.pending.extend_from_slice(bytes);
        if self.shape == Shape::Wav {
            return self.take_header(after);
        }
        while let Some(at) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=at).collect();
            self.take_line(after, &line);
        }
    }

    /// Returns what was seen, once the body has ended.
    pub(super) fn end(mut self, total: Duration) -> Sample {
        let rest = std::mem::take(&mut self.pending);
        if self.shape != Shape::Wav {
            self.take_line(total, &rest);
        }
        // These two have no mark at their end: a body that breaks off is noticed by whoever reads it.
        let came = !self.sample.texts.is_empty() || !self.sample.audio.is_empty();
        let ended = self.ended || (came && matches!(self.shape, Shape::Lines | Shape::Wav));
        if !ended {
            self.fail("no end");
        }
        self.sample.total = total;
        self.sample
    }

    fn take_header(&mut self, after: Duration) {
        if self.pending.len() < WAV_HEADER {
            return;
        }
        if !self.pending.starts_with(b"RIFF") {
            return self.fail("no wav");
        }
        let rate = self.pending[BYTE_RATE].iter().rev().fold(0u32, |rate, &byte| (rate << 8) | u32::from(byte));
        self.byte_rate = f64::from(rate.max(1));
        let samples = self.pending.len() - WAV_HEADER;
        self.hear(after, samples);
    }

    fn take_line(&mut self, after: Duration, line: &[u8]) {
        let line = line.trim_ascii();
        let data = line.strip_prefix(b"data:").unwrap_or(line).trim_ascii();
        if data == b"[DONE]" {
            self.ended = true;
        }
        if !data.starts_with(b"{") {
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(data) else { return self.fail("no json") };
        if !value["error"].is_null() {
            return self.fail("error event");
        }
        match self.shape {
            Shape::Chat => self.take_chat(after, &value),
            Shape::Transcript => self.take_transcript(after, &value),
            Shape::Lines => self.take_native(after, &value),
            Shape::Wav => {}
        }
    }

    fn take_chat(&mut self, after: Duration, chunk: &Value) {
        let choice = &chunk["choices"][0];
        self.read(after, &choice["delta"]["content"]);
        self.ended |= !choice["finish_reason"].is_null();
        self.count(&chunk["usage"]["completion_tokens"]);
    }

    fn take_transcript(&mut self, after: Duration, event: &Value) {
        match event["type"].as_str() {
            Some("transcript.text.delta") => self.read(after, &event["delta"]),
            Some("transcript.text.done") => self.ended = true,
            Some(_) => {}
            // A server that does not stream: the whole text in one document.
            None => {
                self.read(after, &event["text"]);
                self.ended |= event["text"].is_string();
            }
        }
        self.count(&event["usage"]["output_tokens"]);
    }

    fn take_native(&mut self, after: Duration, line: &Value) {
        match line["modality"].as_str() {
            Some("text") => self.read(after, &line["data"]),
            Some("audio") => {
                let metadata = &line["metadata"];
                let number = |name: &str| metadata[name].as_f64().filter(|&value| value > 0.0);
                self.byte_rate =
                    2.0 * number("sample_rate").unwrap_or(24_000.0) * number("num_channels").unwrap_or(1.0);
                self.hear(after, decoded_length(line["data"].as_str().unwrap_or_default()));
            }
            Some("error") => self.fail("error line"),
            _ => {}
        }
    }

    fn read(&mut self, after: Duration, text: &Value) {
        if text.as_str().is_some_and(|text| !text.is_empty()) {
            self.sample.texts.push(after);
        }
    }

    fn hear(&mut self, after: Duration, bytes: usize) {
        if bytes > 0 {
            self.sample.audio.push(Piece { after, seconds: bytes as f64 / self.byte_rate });
        }
    }

    fn count(&mut self, tokens: &Value) {
        self.sample.tokens = tokens.as_u64().or(self.sample.tokens);
    }

    fn fail(&mut self, why: &str) {
        self.sample.failure.get_or_insert_with(|| why.to_owned());
    }
}

/// Returns how many bytes base64 text stands for.
fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
    (text.len() * 3 / 4).saturating_sub(padding)
}

#[cfg(test)]
mod tests;
