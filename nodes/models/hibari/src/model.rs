//! The model: its components, its walks, and the parts of them that others include.

use std::fmt;
use std::sync::Arc;

use mstar_contract::{Component, Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{
    ChunkPolicy, Fragment, Graph, GraphBuilder, Modality, ModelId, Stream, WalkName, loop_over_stream, step,
};

use crate::nodes::{AcousticNode, CutterNode, VocoderNode};
use crate::plan::{OPTIONS, SpeakPlan, VOICE};

/// The partition that cuts text into sentences.
pub const READ: &str = "read";
/// The partition that turns sentences into blocks of frames.
pub const SPEECH: &str = "speech";
/// The partition that turns blocks into sound.
pub const SOUND: &str = "sound";
/// The stream of sentences from [`READ`] to [`SPEECH`].
pub const SENTENCES: &str = "sentences";
/// The stream of blocks from [`SPEECH`] to [`SOUND`].
pub const BLOCKS: &str = "blocks";
/// How many blocks may wait for the vocoder: some eight seconds of sound.
const BLOCK_CREDIT: u64 = 8;

/// The model `hibari`.
pub struct Hibari {
    graph: Arc<Graph>,
}

/// Returns the components that walks of this model name.
pub fn components() -> Vec<Arc<dyn Component>> {
    vec![Arc::new(CutterNode), Arc::new(AcousticNode), Arc::new(VocoderNode)]
}

/// Returns the walk of [`READ`] over a whole text: its input is `text`, its step `cutter.cut`.
pub fn read_fragment() -> Fragment {
    let cut = step("cutter", "cut").input("text").stream_out("sentence", SENTENCES);
    Fragment { section: cut.into(), nodes: vec![("cutter".into(), CutterNode::ID.into())], streams: sentences() }
}

/// Returns the walk of [`READ`] over a text that another partition streams, piece by piece (policy `Fixed(1)`).
pub fn read_stream_fragment(words: &str) -> Fragment {
    let cut = step("cutter", "cut").stream_in("text", words).stream_out("sentence", SENTENCES);
    Fragment { section: loop_over_stream("cutting", cut).into(), ..read_fragment() }
}

/// Returns the walk of [`SPEECH`]: until the sentences end.
pub fn speech_fragment() -> Fragment {
    let say = step("acoustic", "say")
        .stream_in("sentence", SENTENCES)
        .stream_out("block", BLOCKS)
        .client("unread", Modality::Detail);
    let blocks = Stream::new(BLOCKS, SPEECH, SOUND, ChunkPolicy::Fixed(1)).credit(BLOCK_CREDIT);
    Fragment {
        section: loop_over_stream("saying", say).into(),
        nodes: vec![("acoustic".into(), AcousticNode::ID.into())],
        streams: vec![blocks],
    }
}

/// Returns the walk of [`SOUND`]: until the blocks end; it gives `audio` to the client.
pub fn sound_fragment() -> Fragment {
    let render = step("vocoder", "render").stream_in("block", BLOCKS).client("audio", Modality::Audio);
    Fragment {
        section: loop_over_stream("rendering", render).into(),
        nodes: vec![("vocoder".into(), VocoderNode::ID.into())],
        streams: Vec::new(),
    }
}

fn sentences() -> Vec<Stream> {
    vec![Stream::new(SENTENCES, READ, SPEECH, ChunkPolicy::Fixed(1))]
}

// --- impl Hibari ---

impl Hibari {
    /// Returns the model.
    pub fn new() -> Self {
        let mut builder = GraphBuilder::new();
        let read = builder.include(read_fragment());
        let speech = builder.include(speech_fragment());
        let sound = builder.include(sound_fragment());
        builder.partition(READ).partition(SPEECH).partition(SOUND);
        builder.walk(READ, "read", read).walk(SPEECH, "speech", speech).walk(SOUND, "sound", sound);
        Self { graph: builder.build().expect("invariant: the graph of hibari is well formed") }
    }
}

impl Default for Hibari {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hibari {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hibari").finish_non_exhaustive()
    }
}

impl Model for Hibari {
    fn id(&self) -> ModelId {
        "hibari".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            summary: "hibari: speaks English text, 24 kHz".into(),
            inputs: vec![Modality::Text],
            outputs: vec![Modality::Audio],
            voices: vec![VOICE.into()],
            options: OPTIONS.map(str::to_owned).to_vec(),
            ..ModelCard::default()
        }
    }

    fn ways(&self) -> Vec<Vec<WalkName>> {
        vec![["read", "speech", "sound"].map(WalkName::from).into()]
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        Ok(Box::new(SpeakPlan::new(request)?))
    }
}
