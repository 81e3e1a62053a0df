//! A model for tests of what the model `fake` lacks: audio that goes in, requests that take as long as a test wants,
//! and requests that fail on the way. It writes down how long a recording is, word by word; it waits at a [`Gate`] that
//! the test opens; and when it speaks, it clears its throat and then fails.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use mstar_contract::{
    Component, Compute, ComputeCx, Invalid, LoadCx, LoadError, Loaded, Model, ModelCard, NextWalk, OpDecl, Plan,
    Recovery, Request, Row, RowError, RowOutput, Task, Value, WeightSource,
};
use mstar_graph::{ComponentId, Graph, GraphBuilder, GraphProblems, Modality, ModelId, OpName, step};
use mstar_kernels::Tensor;
use mstar_media::{Limits, decode_audio};
use mstar_zoo::Entry;
use serde_json::json;

/// Where requests wait until the test lets them pass.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

/// The model `scribe`.
#[derive(Debug)]
struct Scribe {
    graph: Arc<Graph>,
}

struct ScribePlan(NextWalk);

/// Listens to recordings.
struct Ear;

/// Begins to speak and fails.
struct Mouth;

/// Holds texts up.
#[derive(Clone)]
struct Door(Arc<Gate>);

/// Longest that a closed gate holds anything up: a test that fails ends all the same.
const HELD_AT_MOST: Duration = Duration::from_secs(60);

/// Returns the model with its components; what its walk `wait` carries passes when the gate is open.
pub fn entry(gate: &Arc<Gate>) -> Result<Entry, GraphProblems> {
    let mut graph = GraphBuilder::new();
    let listen = step("ear", "listen").input("audio");
    let listen = listen.client("text", Modality::Text).client("segments", Modality::Detail);
    let wait = step("door", "wait").input("text").client("text", Modality::Text);
    let say = step("mouth", "say").input("text").client("audio", Modality::Audio).to("text", "mouth.fail", "text");
    let fail = step("mouth", "fail").client("audio", Modality::Audio);
    graph
        .node("ear", "scribe.ear")
        .node("door", "scribe.door")
        .node("mouth", "scribe.mouth")
        .partition("main")
        .walk("main", "transcribe", listen)
        .walk("main", "wait", wait)
        .walk("main", "speak", say.then(fail));
    let scribe = Scribe { graph: graph.build()? };
    Ok(Entry::new(scribe, vec![Arc::new(Ear), Arc::new(Mouth), Arc::new(Door(Arc::clone(gate)))]))
}

// --- impl Gate ---

impl Gate {
    /// Lets all pass, now and later.
    pub fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_timeout_while(open, HELD_AT_MOST, |open| !*open));
    }
}

// --- impl Scribe ---

impl Model for Scribe {
    fn id(&self) -> ModelId {
        "scribe".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard {
            summary: "tells how long a recording is".to_owned(),
            inputs: vec![Modality::Audio, Modality::Text],
            outputs: vec![Modality::Text, Modality::Audio, Modality::Detail],
            options: vec!["timestamps".to_owned(), "voice".to_owned()],
            ..ModelCard::default()
        }
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        request.refuse_unknown_options(&["timestamps", "voice"])?;
        if let Some(media) = request.first_media(Modality::Audio) {
            let audio = Value::Bytes(media.bytes.clone());
            return Ok(Box::new(ScribePlan(NextWalk::new("main", "transcribe").input("audio", audio))));
        }
        if request.task == Task::Transcribe {
            return Err(Invalid::new("file", "is no audio"));
        }
        let text = request.last_text().ok_or_else(|| Invalid::new("messages", "the last message has no text"))?;
        let walk = if request.outputs.contains(&Modality::Audio) { "speak" } else { "wait" };
        Ok(Box::new(ScribePlan(NextWalk::new("main", walk).input("text", Value::text(text)))))
    }
}

impl Plan for ScribePlan {
    fn begin(&self) -> Vec<NextWalk> {
        vec![self.0.clone()]
    }
}

// --- impl Ear ---

impl Component for Ear {
    fn id(&self) -> ComponentId {
        "scribe.ear".into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("listen", &["audio"], &["text", "segments"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, _cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Stateless(Box::new(Ear)))
    }
}

impl Compute for Ear {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(listen).collect()
    }
}

fn listen(row: &Row) -> Result<RowOutput, RowError> {
    let Value::Bytes(bytes) = row.value("audio")? else {
        return Err(RowError::Internal("audio is not bytes".to_owned()));
    };
    let field = row.request().first_media(Modality::Audio).map_or_else(String::new, |media| media.field.clone());
    let audio = decode_audio(bytes, &Limits::default())
        .map_err(|error| RowError::Invalid { field, message: error.to_string() })?;
    let seconds = audio.seconds();
    let mut output = RowOutput::default();
    let words = [" I", " heard", &format!(" {seconds:.2}"), " seconds."];
    words.iter().for_each(|word| output.push("text", Value::text(*word)));
    let segments = json!({
        "segments": [{"start": 0.0, "end": seconds, "text": words.concat()}], "language": "en", "duration": seconds,
    });
    output.push("segments", Value::json(segments));
    Ok(output)
}

// --- impl Mouth ---

impl Component for Mouth {
    fn id(&self) -> ComponentId {
        "scribe.mouth".into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("say", &["text"], &["audio", "text"]), OpDecl::new("fail", &["text"], &["audio"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, _cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Stateless(Box::new(Mouth)))
    }
}

impl Compute for Mouth {
    fn run(&mut self, op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        let say = |row: &Row| {
            if op.as_str() == "fail" {
                return Err(RowError::Internal("the voice fails".to_owned()));
            }
            let mut output = RowOutput::default();
            output.push("audio", cx.audio(Tensor::from_f32(vec![0.25; 480], [480])?, 24_000));
            output.push("text", row.value("text")?.clone());
            Ok(output)
        };
        rows.iter().map(say).collect()
    }
}

// --- impl Door ---

impl Component for Door {
    fn id(&self) -> ComponentId {
        "scribe.door".into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("wait", &["text"], &["text"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, _cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Stateless(Box::new(self.clone())))
    }
}

impl Compute for Door {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        self.0.pass();
        rows.iter()
            .map(|row| {
                let mut output = RowOutput::default();
                output.push("text", row.value("text")?.clone());
                Ok(output)
            })
            .collect()
    }
}
