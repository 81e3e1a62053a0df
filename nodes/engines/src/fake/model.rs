//! The model `fake`: one walk for everything that a graph can express.

use std::sync::Arc;

use mstar_contract::{Invalid, Kept, Model, ModelCard, NextWalk, Plan, Request, Task, Value};
use mstar_graph::{
    Bound, ChunkPolicy, Graph, GraphBuilder, GraphProblems, Modality, ModelId, PartitionName, Section, Stream, Target,
    WalkName, dynamic_loop, loop_over_stream, parallel, repeat, step,
};

use super::component::GENERATE;

/// Most tokens that a request may ask for.
const MAX_TOKENS: u32 = 4096;

/// The walks that a request may name with its option `walk`.
const WALKS: [&str; 8] = ["chat", "speak", "converse", "echo", "nested", "fan", "flood", "recall"];

/// The model `fake`.
///
/// A request's option `walk` names what it wants: `chat` (a reply as text), `speak` (the text as audio, sentence by
/// sentence), `converse` (a reply as text and audio), `echo` (one step), `nested` (loops in a loop), `fan` (three
/// branches and a join), `flood` (option `items`: so many stream items at once), `recall` (two walks, the first keeps
/// what the second says). Without the option the request's task and wanted outputs decide.
#[derive(Debug)]
pub struct FakeModel {
    graph: Arc<Graph>,
}

/// What a request of the fake model walks.
#[derive(Debug)]
struct FakePlan {
    begin: Vec<NextWalk>,
}

// --- impl FakeModel ---

impl FakeModel {
    /// Builds the model's graph.
    pub fn new() -> Result<Self, GraphProblems> {
        let mut graph = GraphBuilder::new();
        graph
            .node("llm", "fake.llm")
            .node("text", "fake.text")
            .node("cutter", "fake.cutter")
            .node("vocoder", "fake.vocoder")
            .partition("main")
            .partition("cut")
            .partition("voice")
            .stream(Stream::new("words", "main", "cut", ChunkPolicy::Fixed(1)))
            .stream(Stream::new("sentences", "cut", "voice", ChunkPolicy::Fixed(1)))
            .stream(Stream::new("lines", "cut", "voice", ChunkPolicy::Fixed(1)))
            .walk("main", "chat", reply())
            .walk("main", "converse", spoken_reply())
            .walk("main", "echo", step("text", "echo").input("in").client("out", Modality::Text))
            .walk("main", "nested", nested())
            .walk("main", "fan", fan())
            .walk("main", "note", step("text", "upper").input("in").keep("out", "note"))
            .walk("main", "recall", step("text", "echo").kept("in", "note").client("out", Modality::Text))
            .release("recall", "note")
            .walk("cut", "split", step("text", "split").input("in").stream_out("item", "lines"))
            .walk("cut", "flood", step("text", "emit").input("in").stream_out("item", "lines"))
            .walk("cut", "cut", cut())
            .walk("voice", "utter", utter("sentences"))
            .walk("voice", "recite", utter("lines"));
        Ok(Self { graph: graph.build()? })
    }
}

/// A reply of the language model, token by token, as text to the client.
fn reply() -> Section {
    let opening = step("llm", "prefill").input("prompt").to("token", "llm.decode", "token");
    let body = step("llm", "decode").back("token", "llm.decode", "token");
    let bound = Bound::from_request("max_tokens", MAX_TOKENS);
    let to_client = Target::Client(Modality::Text);
    opening.then(dynamic_loop(GENERATE, bound, body)).wire("llm.prefill", "text", to_client.clone()).wire(
        "llm.decode",
        "text",
        to_client,
    )
}

/// The same, and its text goes to the cutter as well.
fn spoken_reply() -> Section {
    let to_cutter = Target::Stream("words".into());
    reply().wire("llm.prefill", "text", to_cutter.clone()).wire("llm.decode", "text", to_cutter)
}

/// Text in pieces becomes sentences.
fn cut() -> Section {
    loop_over_stream("cutting", step("cutter", "cut").stream_in("text", "words").stream_out("item", "sentences")).into()
}

/// A stream of text becomes audio.
fn utter(stream: &str) -> Section {
    let body = step("vocoder", "speak").stream_in("items", stream).client("audio", Modality::Audio);
    loop_over_stream("uttering", body).into()
}

/// A loop of three around a loop of two, each with all its values gathered.
fn nested() -> Section {
    let grow = step("text", "grow").input("in").back("out", "text.grow", "in").to("out", "inner", "items");
    let inner = repeat("growing", 2, grow).gather("text.grow", "out");
    let joined = step("text", "concat").named("inner").to("out", "outer", "items");
    let outer = repeat("around", 3, inner.then(joined)).gather("inner", "out");
    outer.then(step("text", "concat").named("outer").client("out", Modality::Text))
}

/// Three branches of one input, and their join.
fn fan() -> Section {
    let branch = |op: &str, port: &str| step("text", op).input("in").to("out", "text.join", port);
    parallel([branch("upper", "a"), branch("reverse", "b"), branch("echo", "c")])
        .then(step("text", "join").client("out", Modality::Text))
}

impl Model for FakeModel {
    fn id(&self) -> ModelId {
        "fake".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            summary: "a scripted model for tests".to_owned(),
            inputs: vec![Modality::Text],
            outputs: vec![Modality::Text, Modality::Audio],
            voices: vec!["fake".to_owned()],
            options: ["walk", "items", "voice"].map(str::to_owned).into(),
            samples_tokens: true,
            context: 0,
        }
    }

    fn ways(&self) -> Vec<Vec<WalkName>> {
        let ways: [&[&str]; 8] = [
            &["chat"],
            &["converse", "cut", "utter"],
            &["split", "recite"],
            &["flood", "recite"],
            &["echo"],
            &["nested"],
            &["fan"],
            &["note", "recall"],
        ];
        ways.iter().map(|way| way.iter().map(|&walk| walk.into()).collect()).collect()
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        request.refuse_unknown_options(&["walk", "items", "voice"])?;
        let walk = chosen(request)?;
        let text = request.last_text().ok_or_else(|| Invalid::new("messages", "the last message has no text"))?;
        let text = Value::text(text);
        let voice = |walk: &str| NextWalk::new("voice", walk);
        let one = |partition: &str, walk: &str| NextWalk::new(partition, walk).input("in", text.clone());
        let llm = |walk: &str| {
            let next = NextWalk::new("main", walk).input("prompt", text.clone());
            match request.sampling.max_tokens {
                Some(bound) => next.limit("max_tokens", bound),
                None => next,
            }
        };
        let begin = match walk {
            "chat" => vec![llm("chat")],
            "converse" => vec![llm("converse"), NextWalk::new("cut", "cut"), voice("utter")],
            "speak" => vec![one("cut", "split"), voice("recite")],
            "flood" => vec![one("cut", "flood"), voice("recite")],
            "recall" => vec![one("main", "note")],
            walk => vec![one("main", walk)],
        };
        Ok(Box::new(FakePlan { begin }))
    }
}

/// Returns the walk that a request wants.
fn chosen(request: &Request) -> Result<&'static str, Invalid> {
    if let Some(option) = request.options.get("walk") {
        let known = option.as_str().and_then(|name| WALKS.into_iter().find(|walk| *walk == name));
        return known.ok_or_else(|| Invalid::new("model_kwargs.walk", format!("must be one of {}", WALKS.join(", "))));
    }
    let wants = |modality| request.outputs.contains(&modality);
    let converses = wants(Modality::Text) || request.task == Task::Chat;
    Ok(match (request.task, wants(Modality::Audio)) {
        (Task::Speak, _) => "speak",
        (Task::Transcribe, _) => return Err(Invalid::new("model", "model fake does not transcribe")),
        (_, true) if converses => "converse",
        (_, true) => "speak",
        (_, false) => "chat",
    })
}

impl Plan for FakePlan {
    fn begin(&self) -> Vec<NextWalk> {
        self.begin.clone()
    }

    fn follows(&self) -> Vec<WalkName> {
        if self.begin.iter().any(|next| next.walk == "note") { vec!["recall".into()] } else { Vec::new() }
    }

    fn next(&self, partition: &PartitionName, finished: &WalkName, _kept: &Kept) -> Option<NextWalk> {
        (finished.as_str() == "note").then(|| NextWalk::new(partition.as_str(), "recall"))
    }
}

#[cfg(test)]
mod tests;
