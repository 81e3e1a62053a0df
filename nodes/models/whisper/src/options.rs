//! What a request may ask of a transcription.

use mstar_contract::{Invalid, Part, Request, Task};
use mstar_graph::Modality;
use serde_json::Value;

/// The options' names.
pub const OPTIONS: [&str; 5] = ["language", "prompt", "suppress", "task", "timestamps"];

/// The longest text before the audio, in bytes; a model reads the last 223 tokens of it.
const MAX_PROMPT: usize = 16 << 10;

/// Returns whether a request's sampling is that of the transcript: where a walk answers as well, it is the answer's.
pub(crate) fn samples_transcript(request: &Request) -> bool {
    let mut parts = request.messages.iter().flat_map(|message| &message.parts);
    let asks = parts.any(|part| matches!(part, Part::Text(text) if !text.trim().is_empty()));
    match request.task {
        Task::Transcribe => true,
        Task::Generate => !asks && !request.outputs.contains(&Modality::Audio),
        Task::Chat | Task::Speak => false,
    }
}

/// A request's options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Language code; found by listening when there is none.
    pub(crate) language: Option<String>,
    /// Text that comes before the audio: names and spellings to expect.
    pub(crate) prompt: Option<String>,
    /// Leaves out the checkpoint's suppressed tokens, such as musical notes.
    pub(crate) suppress: bool,
    /// Writes English, whatever is spoken.
    pub(crate) translate: bool,
    /// Decodes with times also where the audio is short.
    pub(crate) timestamps: bool,
    /// The client wants the segments.
    pub(crate) segments: bool,
}

// --- impl Options ---

impl Options {
    /// Reads a request's options. Those that are not a transcription's are ignored: composites have others.
    pub(crate) fn of(request: &Request) -> Result<Self, Invalid> {
        let field = |name: &str| format!("model_kwargs.{name}");
        let text = |name: &str| match request.options.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Invalid::new(field(name), "must be text")),
        };
        let flag = |name: &str, default: bool| match request.options.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Invalid::new(field(name), "must be true or false")),
        };
        let language = text("language")?.map(|code| code.to_ascii_lowercase());
        let plain = |code: &String| (2..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase());
        if language.as_ref().is_some_and(|code| !plain(code)) {
            return Err(Invalid::new(field("language"), "must be a language code, such as en"));
        }
        let translate = match text("task")?.as_deref() {
            None | Some("transcribe") => false,
            Some("translate") => true,
            Some(_) => return Err(Invalid::new(field("task"), "must be transcribe or translate")),
        };
        let prompt = text("prompt")?.filter(|prompt| !prompt.is_empty());
        if prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT) {
            return Err(Invalid::new(field("prompt"), format!("must have at most {MAX_PROMPT} bytes")));
        }
        let timestamps = flag("timestamps", false)?;
        let segments = timestamps || request.outputs.contains(&Modality::Detail);
        Ok(Self { language, prompt, suppress: flag("suppress", true)?, translate, timestamps, segments })
    }
}
