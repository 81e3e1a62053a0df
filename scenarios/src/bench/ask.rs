//! The requests of a benchmark, each its own, the same for the same seed.

use std::sync::Arc;

use mstar_media::{Limits, decode_audio};
use serde_json::{Map, Value, json};

use super::Bench;
use super::answer::Shape;
use crate::asks::sentence;
use crate::error::StoryError;
use crate::lots::Lots;

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A streamed chat completion, at temperature 0.
    Chat,
    /// A text that is spoken, streamed as a wav file.
    Speak,
    /// A recording that is written down, streamed where the server can.
    Transcribe,
    /// A question to which text and audio answer, over M*'s native endpoint.
    Converse,
}

/// What is asked where a recording may be heard.
#[derive(Clone, Debug)]
pub enum Question {
    /// A recording.
    Recording {
        /// Its file name.
        name: String,
        /// The file.
        bytes: Arc<[u8]>,
        /// How long it sounds.
        seconds: f64,
    },
    /// A text in its place.
    Text,
}

/// A request, and how it will be answered.
pub(super) struct Asked {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) shape: Shape,
    /// Seconds of audio in it.
    pub(super) listened: f64,
}

const JSON: &str = "application/json";
const BOUNDARY: &str = "mstar-bench-7d1c5e";
const FORM: &str = "multipart/form-data; boundary=mstar-bench-7d1c5e";
/// What longer prompts are filled with.
const FILLER: [&str; 8] = ["rain", "stone", "morning", "paper", "market", "silver", "north", "apple"];

// --- impl Scenario ---

impl Scenario {
    /// Returns the model that the shipped deployment has for it.
    pub fn usual_model(self) -> &'static str {
        match self {
            Self::Chat => "smollm2",
            Self::Speak => "hibari",
            Self::Transcribe => "whisper",
            Self::Converse => "voice",
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Speak => "speak",
            Self::Transcribe => "transcribe",
            Self::Converse => "converse",
        }
    }
}

// --- impl Question ---

impl Question {
    /// Takes a recording: wav, flac, mp3 or ogg.
    pub fn recording(name: &str, bytes: Vec<u8>) -> Result<Self, StoryError> {
        let seconds = decode_audio(&bytes, &Limits::default())?.seconds();
        Ok(Self::Recording { name: name.to_owned(), bytes: bytes.into(), seconds })
    }
}

// --- impl Bench ---

impl Bench {
    /// Returns the `n`th request.
    pub(super) fn asked(&self, n: usize) -> Asked {
        match self.scenario {
            Scenario::Chat => self.chat(n),
            Scenario::Speak => self.speak(n),
            Scenario::Transcribe => self.transcribe(),
            Scenario::Converse => self.converse(n),
        }
    }

    fn chat(&self, n: usize) -> Asked {
        let body = json!({
            "model": self.model, "stream": true, "stream_options": {"include_usage": true},
            "max_tokens": self.max_tokens, "temperature": 0,
            "messages": [{"role": "user", "content": self.prompt(n)}],
        });
        self.json("/v1/chat/completions", Shape::Chat, body)
    }

    fn speak(&self, n: usize) -> Asked {
        let passage = || {
            format!(
                "The {}, and the {}. Nobody at the station knew that the {}. Then, after a while, the {} again.",
                sentence(n),
                sentence(n + 5),
                sentence(n + 10),
                sentence(n + 15),
            )
        };
        let input = self.prompt.clone().unwrap_or_else(passage);
        let body = json!({"model": self.model, "input": input, "voice": "heart", "response_format": "wav"});
        self.json("/v1/audio/speech", Shape::Wav, body)
    }

    fn transcribe(&self) -> Asked {
        let mut form = Form::default();
        form.field("model", &self.model);
        form.field("stream", "true");
        form.field("response_format", "json");
        for (name, value) in &self.fields {
            form.field(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        self.form("/v1/audio/transcriptions", "file", Shape::Transcript, form)
    }

    fn converse(&self, n: usize) -> Asked {
        let mut options = Map::from_iter([
            ("temperature".to_owned(), json!(0)),
            ("max_output_tokens".to_owned(), json!(self.max_tokens)),
        ]);
        options.extend(self.fields.clone());
        let mut form = Form::default();
        form.field("model", &self.model);
        form.field("output_modalities", "text,audio");
        form.field("streaming", "true");
        form.field("model_kwargs", &Value::Object(options).to_string());
        if matches!(self.question, Question::Text) {
            form.field("text", &self.prompt(n));
        }
        self.form("/generate", "files", Shape::Lines, form)
    }

    /// Returns a prompt that no other number has, so that nobody answers from memory, unless all are to say the same.
    fn prompt(&self, n: usize) -> String {
        let lots = Lots::new(self.seed, "prompts");
        let word = |place: usize| FILLER[lots.below((n * 4096 + place) as u64, FILLER.len() as u64) as usize];
        let filler: String = (0..self.prompt_words).map(|place| format!("{} ", word(place))).collect();
        let own = || format!("Write a long story, number {n}, in which the {}.", sentence(n));
        filler + &self.prompt.clone().unwrap_or_else(own)
    }

    fn json(&self, path: &'static str, shape: Shape, mut body: Value) -> Asked {
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.fields.clone());
        }
        Asked { path, content_type: JSON, body: body.to_string().into_bytes(), shape, listened: 0.0 }
    }

    fn form(&self, path: &'static str, file: &str, shape: Shape, mut form: Form) -> Asked {
        let mut listened = 0.0;
        if let Question::Recording { name, bytes, seconds } = &self.question {
            form.file(file, name, bytes);
            listened = *seconds;
        }
        Asked { path, content_type: FORM, body: form.end(), shape, listened }
    }
}

/// A multipart form that is being written.
#[derive(Default)]
struct Form(Vec<u8>);

// --- impl Form ---

impl Form {
    fn field(&mut self, name: &str, value: &str) {
        let part = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        self.0.extend_from_slice(part.as_bytes());
    }

    fn file(&mut self, field: &str, name: &str, bytes: &[u8]) {
        let disposition = format!("form-data; name=\"{field}\"; filename=\"{name}\"");
        let head = format!(
            "--{BOUNDARY}\r\ncontent-disposition: {disposition}\r\ncontent-type: application/octet-stream\r\n\r\n"
        );
        self.0.extend_from_slice(head.as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0
    }
}
