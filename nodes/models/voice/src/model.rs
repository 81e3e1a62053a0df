//! The graph: fragments of other models, joined.

use std::sync::Arc;

use mstar_contract::{Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{
    ChunkPolicy, Fragment, Graph, GraphBuilder, GraphProblems, Modality, ModelId, Section, Source, Stream, Target,
    WalkName,
};

use crate::plan::{VoicePlan, ways};

/// The partition that listens and answers.
pub(crate) const MAIN: &str = "main";
/// The partition that cuts text into sentences.
pub(crate) const READ: &str = "read";
/// The partition that turns sentences into blocks of sound to be.
pub(crate) const SPEECH: &str = "speech";
/// The partition that renders blocks.
pub(crate) const SOUND: &str = "sound";
/// The stream of the reply's text from [`MAIN`] to [`READ`].
pub(crate) const REPLY: &str = "reply";
/// What was heard, kept from `listen` for the walk that answers.
const HEARD: &str = "heard";
/// Pieces of text that the answer may be ahead of its reader.
const REPLY_CREDIT: u64 = 64;

/// What `voice` is made of. The zoo fills it from the models' crates.
pub struct Parts {
    /// Answers: steps `prompt.encode`, `llm.prefill`, `llm.decode`.
    pub chat: Fragment,
    /// Writes down: last step `segments.segment` with outputs `text`, `segments`, `transcript` left open.
    pub transcribe: Fragment,
    /// Cuts a whole text: input `text`.
    pub read: Fragment,
    /// Cuts a text that comes as the stream of the given name.
    pub read_stream: fn(&str) -> Fragment,
    /// Turns sentences into blocks.
    pub speech: Fragment,
    /// Renders blocks, audio to the client.
    pub sound: Fragment,
    /// The models that the parts come from, asked whether they would take a request: they know their own options.
    pub answers: Arc<dyn Model>,
    /// The one that listens.
    pub listens: Arc<dyn Model>,
    /// The one that speaks.
    pub speaks: Arc<dyn Model>,
}

/// The model `voice`.
pub struct Voice {
    graph: Arc<Graph>,
    members: Members,
}

/// The models that know their parts' options.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) answers: Arc<dyn Model>,
    pub(crate) listens: Arc<dyn Model>,
    pub(crate) speaks: Arc<dyn Model>,
}

// --- impl Voice ---

impl Voice {
    /// Joins the parts, or tells what does not fit.
    pub fn new(parts: Parts) -> Result<Self, GraphProblems> {
        let members = Members { answers: parts.answers, listens: parts.listens, speaks: parts.speaks };
        let mut builder = GraphBuilder::new();
        for partition in [MAIN, READ, SPEECH, SOUND] {
            builder.partition(partition);
        }
        builder.stream(Stream::new(REPLY, MAIN, READ, ChunkPolicy::Fixed(1)).credit(REPLY_CREDIT));
        let listening = builder.include(parts.transcribe);
        // What was heard is the user's turn where `listen` went before.
        let answer = builder.include(parts.chat).feed("prompt.encode", "heard", Source::Kept(HEARD.into()));
        let read = builder.include(parts.read);
        let read_stream = builder.include((parts.read_stream)(REPLY));
        let speech = builder.include(parts.speech);
        let sound = builder.include(parts.sound);
        builder
            .walk(MAIN, "chat", answer.clone())
            .walk(MAIN, "converse", spoken(answer))
            .walk(MAIN, "transcribe", written(listening.clone()))
            .walk(MAIN, "listen", heard(listening))
            .walk(READ, "speak", read)
            .walk(READ, "read", read_stream)
            .walk(SPEECH, "say", speech)
            .walk(SOUND, "sound", sound);
        Ok(Self { graph: builder.build()?, members })
    }
}

/// The reply's text also goes to the reader.
fn spoken(answer: Section) -> Section {
    let reply = || Target::Stream(REPLY.into());
    answer.wire("llm.prefill", "text", reply()).wire("llm.decode", "text", reply())
}

/// What is heard goes to the client.
fn written(listening: Section) -> Section {
    listening.wire("segments.segment", "text", Target::Client(Modality::Text)).wire(
        "segments.segment",
        "segments",
        Target::Client(Modality::Detail),
    )
}

/// What is heard is kept for the answer; a client that asks for details is told, too.
fn heard(listening: Section) -> Section {
    listening.wire("segments.segment", "transcript", Target::Keep(HEARD.into())).wire(
        "segments.segment",
        "transcript",
        Target::Client(Modality::Detail),
    )
}

impl Model for Voice {
    fn id(&self) -> ModelId {
        "voice".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        let Members { answers, listens, speaks } = &self.members;
        let (answers, listens, speaks) = (answers.card(), listens.card(), speaks.card());
        ModelCard {
            summary: "a voice assistant: hears, answers and speaks".into(),
            inputs: vec![Modality::Text, Modality::Audio],
            outputs: vec![Modality::Text, Modality::Audio],
            voices: speaks.voices,
            options: [listens.options, speaks.options].concat(),
            samples_tokens: true,
            context: answers.context,
        }
    }

    fn ways(&self) -> Vec<Vec<WalkName>> {
        ways()
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        Ok(Box::new(VoicePlan::new(request, &self.members)?))
    }
}
