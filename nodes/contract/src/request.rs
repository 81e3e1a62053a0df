//! A request as the runtime sees it: validated by the gateway, read by plans and ops, never changed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use mstar_graph::{Modality, ModelId};

use crate::{Failure, FailureKind};

/// The id a client knows a request by.
pub type RequestId = Arc<str>;

/// The id the runtime knows a request by. A request that is run again after a loss has the same `id` and a higher
/// `attempt`; what still arrives for an earlier attempt is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// Unique within the process.
    pub id: u64,
    /// Counts from zero.
    pub attempt: u32,
}

/// Whose request it is: what one tenant's requests left behind is never used for another's. 0 is everybody, where there
/// are no API keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub u64);

/// Which endpoint's meaning a request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// The model decides from what goes in and what is wanted.
    #[default]
    Generate,
    /// Answer the conversation.
    Chat,
    /// Speak the text verbatim.
    Speak,
    /// Write down what is said.
    Transcribe,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client's id for it.
    pub id: RequestId,
    /// Whose it is.
    pub tenant: Tenant,
    /// The model whose walks serve it.
    pub model: ModelId,
    /// Which endpoint's meaning it has.
    pub task: Task,
    /// The conversation; a plain prompt is one user message.
    pub messages: Vec<Message>,
    /// Uploaded media, in order; messages point here.
    pub media: Vec<Media>,
    /// Wanted outputs.
    pub outputs: BTreeSet<Modality>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seeds every random draw of the request.
    pub seed: u64,
    /// Model-specific options (voice, speed, language, ...). A model refuses keys it does not know.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// One turn of a conversation.
#[derive(Clone, Debug)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions to the model.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// A part of a turn.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text.
    Text(Arc<str>),
    /// Index into [`Request::media`].
    Media(usize),
}

/// An upload.
#[derive(Clone, Debug)]
pub struct Media {
    /// What it is.
    pub modality: Modality,
    /// The file as it came.
    pub bytes: Bytes,
    /// The request field it came in, for error messages.
    pub field: String,
}

/// How tokens are chosen. `None` leaves the choice to the model's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Keeps the k likeliest tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keeps the likeliest tokens whose probabilities sum to this.
    pub top_p: Option<f32>,
    /// Drops tokens less likely than this share of the likeliest.
    pub min_p: Option<f32>,
    /// Divides (multiplies, when negative) the logits of tokens seen in prompt or output.
    pub repetition_penalty: Option<f32>,
    /// Subtracted once from the logits of tokens in the output.
    pub presence_penalty: Option<f32>,
    /// Subtracted per occurrence from the logits of tokens in the output.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of single tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Strings that end the output; they are not part of it.
    pub stop: Vec<String>,
    /// Bound on sampled tokens.
    pub max_tokens: Option<u32>,
    /// Report each token's log-probability and so many of the likeliest others.
    pub logprobs: Option<u8>,
}

/// A request that cannot be served as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    /// The field at fault, as a path such as `model_kwargs.voice`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Invalid {
    /// Returns the complaint about a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self { kind: FailureKind::Invalid, message: invalid.message, field: Some(invalid.field) }
    }
}

impl Role {
    /// Returns the role's name in the chat formats.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl Request {
    /// Returns a request that brings nothing, wants nothing and leaves every choice to its model.
    pub fn new(id: impl Into<RequestId>, model: impl Into<ModelId>, task: Task) -> Self {
        Self {
            id: id.into(),
            model: model.into(),
            task,
            messages: Vec::new(),
            media: Vec::new(),
            outputs: BTreeSet::new(),
            sampling: Sampling::default(),
            tenant: Default::default(),
            seed: 0,
            options: BTreeMap::new(),
        }
    }

    /// Returns the text of all user and system turns' text parts of the last message, joined.
    pub fn last_text(&self) -> Option<String> {
        let parts = &self.messages.last()?.parts;
        let texts: Vec<&str> =
            parts.iter().filter_map(|p| if let Part::Text(text) = p { Some(&**text) } else { None }).collect();
        if texts.is_empty() { None } else { Some(texts.join("\n")) }
    }

    /// Returns the first upload of a modality.
    pub fn first_media(&self, modality: Modality) -> Option<&Media> {
        self.media.iter().find(|m| m.modality == modality)
    }

    /// Refuses options that are not in `known`, naming the first stranger.
    pub fn refuse_unknown_options(&self, known: &[&str]) -> Result<(), Invalid> {
        match self.options.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Invalid::new(
                format!("model_kwargs.{key}"),
                format!("unknown option for model {}; known: {}", self.model, known.join(", ")),
            )),
            None => Ok(()),
        }
    }
}
