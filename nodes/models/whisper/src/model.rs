//! The model: its components and its walk.

use std::sync::Arc;

use mstar_contract::{Component, Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{Fragment, Graph, GraphBuilder, Modality, ModelId, Section, dynamic_loop, sequential, step};

use crate::nodes::{DECODE, Decode, Encode, Features, MediaIn, Segments, WINDOWS};
use crate::options::OPTIONS;
use crate::plan::TranscribePlan;

/// Most tokens of a window after its first: half the published checkpoints' decoder context.
const MAX_TOKENS: u32 = 223;
/// Most windows of a request. A window may be as short as its first pair of timestamps says.
const MAX_WINDOWS: u32 = 1 << 20;

/// The model `whisper`.
pub struct Whisper {
    graph: Arc<Graph>,
}

/// Returns the components that walks of this model name.
pub fn components() -> Vec<Arc<dyn Component>> {
    vec![Arc::new(MediaIn), Arc::new(Features), Arc::new(Encode), Arc::new(Decode), Arc::new(Segments)]
}

/// Returns the walk `transcribe` for others to include: it takes the input `upload`, the bytes of a file. Its last step
/// is `segments.segment`, whose outputs `text` (of a window), `segments` (with times) and `transcript` (all of the
/// text, once the loop `windows` has ended) are left for the including walk to wire.
pub fn transcribe_fragment() -> Fragment {
    let ids = [
        ("media", MediaIn::ID),
        ("features", Features::ID),
        ("encoder", Encode::ID),
        ("decoder", Decode::ID),
        ("segments", Segments::ID),
    ];
    Fragment {
        section: transcribe(),
        nodes: ids.into_iter().map(|(node, component)| (node.into(), component.into())).collect(),
        streams: Vec::new(),
    }
}

fn transcribe() -> Section {
    let media = step("media", "decode").input("upload").to("audio", "features.window", "audio");
    let features = step("features", "window")
        .optional("next")
        .to("mel", "encoder.encode", "mel")
        .to("window", "decoder.prefill", "window")
        .to("window", "segments.segment", "window");
    let encoder = step("encoder", "encode").to("context", "decoder.prefill", "context");
    let prefill =
        step("decoder", "prefill").to("token", "decoder.decode", "token").to("token", "segments.segment", "token");
    let decode =
        step("decoder", "decode").back("token", "decoder.decode", "token").to("token", "segments.segment", "tokens");
    let decode = dynamic_loop(DECODE, MAX_TOKENS, decode).gather("decoder.decode", "token");
    let segments =
        step("segments", "segment").optional("token").optional("tokens").back("next", "features.window", "next");
    let window: [Section; 5] = [features.into(), encoder.into(), prefill.into(), decode.into(), segments.into()];
    Section::from(media).then(dynamic_loop(WINDOWS, MAX_WINDOWS, sequential(window)))
}

// --- impl Whisper ---

impl Whisper {
    /// Returns the model.
    pub fn new() -> Self {
        use mstar_graph::Target::Client;
        let mut builder = GraphBuilder::new();
        let transcribe = builder
            .include(transcribe_fragment())
            .wire("segments.segment", "text", Client(Modality::Text))
            .wire("segments.segment", "segments", Client(Modality::Detail));
        let graph = builder.partition("main").walk("main", "transcribe", transcribe).build();
        Self { graph: graph.expect("invariant: the graph of whisper is well formed") }
    }
}

impl Default for Whisper {
    fn default() -> Self {
        Self::new()
    }
}

impl Model for Whisper {
    fn id(&self) -> ModelId {
        "whisper".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            summary: "Whisper: writes down what is said, in audio of any length".into(),
            inputs: vec![Modality::Audio],
            outputs: vec![Modality::Text],
            options: OPTIONS.iter().map(|&name| name.to_owned()).collect(),
            ..ModelCard::default()
        }
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        Ok(Box::new(TranscribePlan::new(request)?))
    }
}
