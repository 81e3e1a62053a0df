//! The model: its components and its walk.

use std::sync::Arc;

use mstar_contract::{Component, Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{Bound, Fragment, Graph, GraphBuilder, Modality, ModelId, Section, dynamic_loop, sequential, step};

use crate::nodes::{DECODE, Llm, Prompt};
use crate::plan::ChatPlan;

/// Longest sequence of the published checkpoint, in tokens.
pub(crate) const CONTEXT: u32 = 8192;
/// Number of tokens of the published checkpoint.
pub(crate) const VOCABULARY: usize = 49_152;

/// The model `smollm2`.
pub struct SmolLm2 {
    graph: Arc<Graph>,
}

/// Returns the components that walks of this model name.
pub fn components() -> Vec<Arc<dyn Component>> {
    vec![Arc::new(Prompt), Arc::new(Llm)]
}

/// Returns the walk `chat` for others to include: it takes the inputs `messages` and perhaps `heard`, text that becomes
/// the user's last turn, and gives `text` and `detail` to the client. Its steps are `prompt.encode`, `llm.prefill` and
/// `llm.decode`; the two of `llm` give `token`, `text` and `detail`.
pub fn chat_fragment() -> Fragment {
    Fragment {
        section: chat(),
        nodes: vec![("prompt".into(), Prompt::ID.into()), ("llm".into(), Llm::ID.into())],
        streams: Vec::new(),
    }
}

fn chat() -> Section {
    let encode = step("prompt", "encode").input("messages").input("heard").optional("heard").to(
        "tokens",
        "llm.prefill",
        "tokens",
    );
    let prefill = step("llm", "prefill")
        .to("token", "llm.decode", "token")
        .client("text", Modality::Text)
        .client("detail", Modality::Detail);
    let decode = step("llm", "decode")
        .back("token", "llm.decode", "token")
        .client("text", Modality::Text)
        .client("detail", Modality::Detail);
    let decode = dynamic_loop(DECODE, Bound::from_request("max_tokens", CONTEXT), decode);
    sequential([Section::from(encode), prefill.into(), decode.into()])
}

// --- impl SmolLm2 ---

impl SmolLm2 {
    /// Returns the model.
    pub fn new() -> Self {
        let mut builder = GraphBuilder::new();
        let chat = builder.include(chat_fragment());
        let graph = builder.partition("main").walk("main", "chat", chat).build();
        Self { graph: graph.expect("invariant: the graph of smollm2 is well formed") }
    }
}

impl Default for SmolLm2 {
    fn default() -> Self {
        Self::new()
    }
}

impl Model for SmolLm2 {
    fn id(&self) -> ModelId {
        "smollm2".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            summary: "SmolLM2-135M-Instruct: answers a conversation in English".into(),
            inputs: vec![Modality::Text],
            outputs: vec![Modality::Text],
            samples_tokens: true,
            context: CONTEXT as usize,
            ..ModelCard::default()
        }
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        Ok(Box::new(ChatPlan::new(request)?))
    }
}
