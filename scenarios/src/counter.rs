//! A model that computes nothing: what is measured on it is the runtime and the server.

use std::sync::Arc;

use mstar_contract::{
    Component, Engine, EngineUsage, ExecuteCx, Invalid, LoadCx, LoadError, Loaded, Model, ModelCard, NextWalk, OpDecl,
    Plan, Recovery, Request, RequestKey, Row, RowOutput, RowProgress, Task, Usage, Value, WeightSource,
};
use mstar_graph::{Bound, ComponentId, Graph, GraphBuilder, GraphProblems, Modality, ModelId, repeat, step};
use mstar_zoo::{Entry, Zoo};

use crate::error::StoryError;

/// The model's name.
pub(crate) const COUNTER: &str = "counter";
/// Most tokens of an answer.
const MOST: u32 = 1_000_000;

/// Answers a chat with as many tokens as may be sampled, anything else with what came, in one step.
struct Counter {
    graph: Arc<Graph>,
}

/// The component behind both walks.
struct Counts;

/// Answers every row at once.
struct CountingEngine {
    token: Value,
    text: Value,
}

/// One walk.
struct Walk(NextWalk);

/// Returns the models of the benchmark.
pub(crate) fn zoo() -> Result<Zoo, StoryError> {
    Ok(Zoo::new(vec![Entry::new(Counter::new()?, vec![Arc::new(Counts)])])?)
}

// --- impl Counter ---

impl Counter {
    fn new() -> Result<Self, GraphProblems> {
        let echo = step("counter", "echo").input("in").client("out", Modality::Text);
        let count = step("counter", "count")
            .input("token")
            .back("token", "counter.count", "token")
            .client("text", Modality::Text);
        let mut graph = GraphBuilder::new();
        graph.node("counter", "counter.counts").partition("main").walk("main", "echo", echo).walk(
            "main",
            "count",
            repeat("counting", Bound::from_request("tokens", MOST), count),
        );
        Ok(Self { graph: graph.build()? })
    }
}

impl Model for Counter {
    fn id(&self) -> ModelId {
        COUNTER.into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        let text = vec![Modality::Text];
        ModelCard { inputs: text.clone(), outputs: text, samples_tokens: true, ..ModelCard::default() }
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        let walk = match (request.task, request.last_text()) {
            (Task::Chat, _) => {
                let tokens = request.sampling.max_tokens.unwrap_or(16);
                NextWalk::new("main", "count").input("token", Value::token(1)).limit("tokens", tokens)
            }
            (_, Some(text)) => NextWalk::new("main", "echo").input("in", Value::text(text)),
            (_, None) => return Err(Invalid::new("text", "there is nothing to give back")),
        };
        Ok(Box::new(Walk(walk)))
    }
}

impl Plan for Walk {
    fn begin(&self) -> Vec<NextWalk> {
        vec![self.0.clone()]
    }
}

// --- impl Counts ---

impl Component for Counts {
    fn id(&self) -> ComponentId {
        "counter.counts".into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("echo", &["in"], &["out"]), OpDecl::new("count", &["token"], &["token", "text"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, _: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Engine(Box::new(CountingEngine { token: Value::token(1), text: Value::text(" word") })))
    }
}

// --- impl CountingEngine ---

impl Engine for CountingEngine {
    fn execute(&mut self, rows: Vec<Row>, _: &ExecuteCx<'_>) -> Vec<RowProgress> {
        let answer = |row: Row| {
            let mut output = RowOutput::default();
            let outcome = if row.op.as_str() == "echo" {
                row.value("in").map(|value| output.outputs.push(("out".into(), value.clone())))
            } else {
                output.outputs.push(("token".into(), self.token.clone()));
                output.outputs.push(("text".into(), self.text.clone()));
                output.usage = Usage { prompt_tokens: 0, completion_tokens: 1 };
                Ok(())
            };
            RowProgress::Done(row.work, outcome.map(|()| output))
        };
        rows.into_iter().map(answer).collect()
    }

    fn retire(&mut self, _: RequestKey) {}

    fn reset(&mut self) {}

    fn usage(&self) -> EngineUsage {
        EngineUsage::default()
    }
}
