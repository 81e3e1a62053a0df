//! Reads the body of `/v1/chat/completions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mstar_contract::{Media, Message, Part, Role, Sampling};
use mstar_graph::Modality;
use serde_json::Value;

use crate::ApiError;
use crate::fields::Fields;
use crate::sampling::read_sampling;

/// Most messages of a conversation, parts of a message, and answers to one request.
const MAX_MESSAGES: usize = 4096;
const MAX_PARTS: usize = 256;
const MAX_CHOICES: u64 = 8;

/// A chat completion as it was asked for.
#[derive(Debug)]
pub(crate) struct ChatCall {
    /// The model, when named.
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Its uploads.
    pub media: Vec<Media>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The seed, when given.
    pub seed: Option<u64>,
    /// Wanted outputs.
    pub outputs: BTreeSet<Modality>,
    /// Voice and other options for the model.
    pub options: BTreeMap<String, Value>,
    /// How audio is to be packed: `wav`, `pcm16` or `flac`.
    pub audio_format: String,
    /// How many answers.
    pub n: u64,
    /// Whether to stream.
    pub stream: bool,
    /// Whether the stream ends with the usage.
    pub include_usage: bool,
}

/// Fields that OpenAI's clients may send and that change nothing here.
const NEUTRAL: [&str; 7] =
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"];

/// Reads the body; `token_limit` is the deployment's bound on sampled tokens.
pub(crate) fn read_chat(body: &Value, token_limit: u32) -> Result<ChatCall, ApiError> {
    let fields = Fields::new("", body)?;
    fields.ignore(&NEUTRAL);
    let mut media = Vec::new();
    let messages = read_messages(&fields, &mut media)?;
    let sampling = read_sampling(&fields, token_limit)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let (outputs, options, audio_format) = read_outputs(&fields, stream)?;
    if let Some(format) = fields.object("response_format")? {
        format.word("type", &["text"])?;
        format.finish()?;
    }
    let include_usage = match fields.object("stream_options")? {
        Some(options) => {
            options.ignore(&["include_obfuscation"]);
            let wanted = options.flag("include_usage")?.unwrap_or(false);
            options.finish()?;
            wanted
        }
        None => false,
    };
    let call = ChatCall {
        model: fields.text("model")?.map(str::to_owned),
        messages,
        media,
        sampling,
        seed: fields.whole("seed", 0..=u64::MAX)?,
        outputs,
        options,
        audio_format,
        n: fields.whole("n", 1..=MAX_CHOICES)?.unwrap_or(1),
        stream,
        include_usage,
    };
    fields.finish()?;
    Ok(call)
}

type Outputs = (BTreeSet<Modality>, BTreeMap<String, Value>, String);

fn read_outputs(fields: &Fields<'_>, stream: bool) -> Result<Outputs, ApiError> {
    let mut outputs = BTreeSet::new();
    for (i, value) in fields.list("modalities")?.unwrap_or_default().iter().enumerate() {
        match value.as_str() {
            Some("text") => outputs.insert(Modality::Text),
            Some("audio") => outputs.insert(Modality::Audio),
            _ => return Err(ApiError::field(format!("modalities[{i}]"), "must be \"text\" or \"audio\"")),
        };
    }
    outputs.insert(Modality::Text);
    let (mut options, mut format) = (BTreeMap::new(), if stream { "pcm16" } else { "wav" }.to_owned());
    if let Some(audio) = fields.object("audio")? {
        if !outputs.contains(&Modality::Audio) {
            return Err(ApiError::field("audio", "needs \"audio\" among modalities"));
        }
        match audio.raw("voice") {
            Some(voice @ Value::String(_)) => {
                options.insert("voice".to_owned(), voice.clone());
            }
            None => {}
            Some(_) => return Err(ApiError::field("audio.voice", "must be a string")),
        }
        let formats: &[&str] = if stream { &["pcm16"] } else { &["wav", "pcm16", "flac"] };
        format = audio.word("format", formats)?.unwrap_or(&format).to_owned();
        audio.finish()?;
    }
    Ok((outputs, options, format))
}

fn read_messages(fields: &Fields<'_>, media: &mut Vec<Media>) -> Result<Vec<Message>, ApiError> {
    let list = fields.list("messages")?.ok_or_else(|| ApiError::field("messages", "is required"))?;
    if list.is_empty() || list.len() > MAX_MESSAGES {
        return Err(ApiError::field("messages", format!("must have 1 to {MAX_MESSAGES} messages")));
    }
    list.iter().enumerate().map(|(i, value)| read_message(&format!("messages[{i}]"), value, media)).collect()
}

fn read_message(path: &str, value: &Value, media: &mut Vec<Media>) -> Result<Message, ApiError> {
    let message = Fields::new(path, value)?;
    message.ignore(&["name", "refusal", "annotations", "audio", "tool_call_id", "function_call", "tool_calls"]);
    let role = match message.required_text("role")? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => {
            let allowed = "system, developer, user, assistant, tool";
            return Err(ApiError::field(message.path("role"), format!("{other:?} is not one of {allowed}")));
        }
    };
    let content_path = message.path("content");
    let parts = match message.raw("content") {
        Some(Value::String(text)) => vec![Part::Text(text.as_str().into())],
        Some(Value::Array(list)) if list.len() > MAX_PARTS => {
            return Err(ApiError::field(content_path, format!("has more than {MAX_PARTS} parts")));
        }
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(i, part)| read_part(&format!("{content_path}[{i}]"), part, media))
            .collect::<Result<_, _>>()?,
        // An assistant turn that only spoke has no text of its own.
        None if role == Role::Assistant => Vec::new(),
        None => return Err(ApiError::field(content_path, "is required")),
        Some(_) => return Err(ApiError::field(content_path, "must be a string or a list of parts")),
    };
    message.finish()?;
    Ok(Message { role, parts })
}

fn read_part(path: &str, value: &Value, media: &mut Vec<Media>) -> Result<Part, ApiError> {
    let part = Fields::new(path, value)?;
    let read = match part.required_text("type")? {
        "text" => Part::Text(Arc::from(part.required_text("text")?)),
        "refusal" => Part::Text(Arc::from(part.required_text("refusal")?)),
        "input_audio" => {
            let audio =
                part.object("input_audio")?.ok_or_else(|| ApiError::field(part.path("input_audio"), "is required"))?;
            audio.word("format", &["wav", "mp3", "flac", "ogg"])?;
            let field = audio.path("data");
            let bytes = decode_base64(&field, audio.required_text("data")?)?;
            audio.finish()?;
            media.push(Media { modality: Modality::Audio, bytes, field });
            Part::Media(media.len() - 1)
        }
        kind @ ("image_url" | "video_url") => {
            let name = if kind == "image_url" { "image_url" } else { "video_url" };
            let url = part.object(name)?.ok_or_else(|| ApiError::field(part.path(name), "is required"))?;
            url.word("detail", &["auto", "low", "high"])?;
            let field = url.path("url");
            let modality = if kind == "image_url" { Modality::Image } else { Modality::Video };
            let bytes = decode_data_uri(&field, url.required_text("url")?)?;
            url.finish()?;
            media.push(Media { modality, bytes, field });
            Part::Media(media.len() - 1)
        }
        other => {
            let message = format!("{other:?} is not one of text, input_audio, image_url, video_url");
            return Err(ApiError::field(part.path("type"), message));
        }
    };
    part.finish()?;
    Ok(read)
}

fn decode_base64(field: &str, text: &str) -> Result<bytes::Bytes, ApiError> {
    STANDARD.decode(text).map(Into::into).map_err(|error| ApiError::field(field, format!("is not base64: {error}")))
}

/// Reads a `data:` URI. Other URLs are never fetched.
fn decode_data_uri(field: &str, url: &str) -> Result<bytes::Bytes, ApiError> {
    let Some(rest) = url.strip_prefix("data:") else {
        return Err(ApiError::field(field, "only data: URIs are accepted; this deployment fetches no URLs"));
    };
    match rest.split_once(',') {
        Some((head, data)) if head.ends_with(";base64") => decode_base64(field, data),
        _ => Err(ApiError::field(field, "must be a base64 data: URI")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn complains(body: Value, field: &str) {
        let error = read_chat(&body, 4096).expect_err("should be refused");
        assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
    }

    fn turn(content: Value) -> Value {
        json!({"model": "m", "messages": [{"role": "user", "content": content}]})
    }

    #[test]
    fn a_usual_call_is_read() {
        let body = json!({
            "model": "smollm2", "stream": true, "stream_options": {"include_usage": true}, "user": "u", "seed": 7,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
            "temperature": 0.5, "max_completion_tokens": 9, "stop": "\n", "logprobs": true, "top_logprobs": 2,
            "logit_bias": {"5": -100}, "modalities": ["text", "audio"], "audio": {"voice": "heart", "format": "pcm16"}
        });
        let call = read_chat(&body, 4096).unwrap();
        assert_eq!((call.messages.len(), call.sampling.max_tokens, call.sampling.logprobs), (2, Some(9), Some(2)));
        assert!(call.stream && call.include_usage && call.outputs.contains(&Modality::Audio));
    }

    #[test]
    fn every_refusal_names_its_field() {
        complains(json!({"model": "m"}), "messages");
        complains(json!({"messages": []}), "messages");
        complains(json!({"messages": [{"role": "king", "content": "x"}]}), "messages[0].role");
        complains(json!({"messages": [{"role": "user"}]}), "messages[0].content");
        complains(turn(json!([{"type": "text"}])), "messages[0].content[0].text");
        complains(
            turn(json!([{"type": "input_audio", "input_audio": {"data": "%%"}}])),
            "messages[0].content[0].input_audio.data",
        );
        complains(
            turn(json!([{"type": "image_url", "image_url": {"url": "http://x/y.png"}}])),
            "messages[0].content[0].image_url.url",
        );
        let with = |name: &str, value: Value| {
            let mut body = turn(json!("hi"));
            body[name] = value;
            body
        };
        complains(with("temperature", json!(9)), "temperature");
        complains(with("max_tokens", json!(1_000_000)), "max_tokens");
        complains(with("top_logprobs", json!(3)), "top_logprobs");
        complains(with("stop", json!([""])), "stop[0]");
        complains(with("logit_bias", json!({"x": 1})), "logit_bias.x");
        complains(with("tools", json!([])), "tools");
        complains(with("n", json!(0)), "n");
        complains(with("modalities", json!(["smell"])), "modalities[0]");
    }
}
