//! Rows, requests and a small driver for the tests of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mstar_contract::{
    Engine, ExecuteCx, FinishReason, Gauge, In, Journal, JournalStep, Message, Part, Request, RequestKey, Role, Row,
    RowError, RowOutput, RowProgress, Sampling, StepParams, Task, Usage, Value, WorkId,
};
use mstar_kernels::Cx;

use crate::random;

/// What a rank offers.
pub(crate) struct Rank {
    pub(crate) cx: Cx,
    pub(crate) gauge: Arc<Gauge>,
}

impl Rank {
    pub(crate) fn new() -> Self {
        Self::on(Cx::with_threads(1).unwrap())
    }

    pub(crate) fn on(cx: Cx) -> Self {
        Self { cx, gauge: Gauge::new("test") }
    }

    /// Runs rows of one op.
    pub(crate) fn run(&self, engine: &mut dyn Engine, op: &str, rows: Vec<Row>) -> Vec<RowProgress> {
        let of_op = |row| Row { op: op.into(), ..row };
        self.run_mixed(engine, rows.into_iter().map(of_op).collect())
    }

    /// Runs rows as they are.
    pub(crate) fn run_mixed(&self, engine: &mut dyn Engine, rows: Vec<Row>) -> Vec<RowProgress> {
        engine.execute(rows, &ExecuteCx { cx: &self.cx, gauge: &self.gauge, yields: &|| {} })
    }

    /// Runs one row to its end.
    pub(crate) fn finish(&self, engine: &mut dyn Engine, op: &str, row: Row) -> Result<RowOutput, RowError> {
        let mut row = row;
        loop {
            match self.run(engine, op, vec![row]).remove(0) {
                RowProgress::Done(_, result) => return result,
                RowProgress::More(more) => row = more,
                RowProgress::Waiting(_) => panic!("there is no room"),
            }
        }
    }
}

/// Returns what an engine holds: pages in use and in all, and sequences.
pub(crate) fn held(engine: &dyn Engine) -> (usize, usize, usize) {
    let usage = engine.usage();
    (usage.kv_pages_used, usage.kv_pages, usage.sequences)
}

/// Returns a request with this prompt.
pub(crate) fn request(prompt: &str, sampling: Sampling) -> Arc<Request> {
    Arc::new(Request {
        id: "test".into(),
        tenant: Default::default(),
        model: "fake".into(),
        task: Task::Generate,
        messages: vec![Message { role: Role::User, parts: vec![Part::Text(prompt.into())] }],
        media: vec![],
        outputs: BTreeSet::new(),
        sampling,
        seed: 0,
        options: BTreeMap::new(),
    })
}

/// Returns a row with one input, of the op that takes it at this port; work ids are drawn from the key and the draw.
pub(crate) fn row(id: u64, port: &str, input: In, draw: u64, request: &Arc<Request>) -> Row {
    Row {
        work: WorkId(random::bits(id, draw)),
        key: RequestKey { id, attempt: 0 },
        op: if port == "token" { "decode" } else { "prefill" }.into(),
        inputs: [(port.into(), input)].into_iter().collect(),
        params: Arc::new(StepParams { request: Arc::clone(request), label: 0 }),
        draw,
        rebuild: None,
    }
}

/// Returns a row with a text.
pub(crate) fn text_row(id: u64, port: &str, text: &str) -> Row {
    row(id, port, In::One(Value::text(text)), 0, &request(text, Sampling::default()))
}

/// A generation under way, driven step by step as a walker would.
pub(crate) struct Generation {
    pub(crate) id: u64,
    request: Arc<Request>,
    prompt: In,
    pub(crate) tokens: Vec<u32>,
    pub(crate) text: String,
    pub(crate) details: Vec<serde_json::Value>,
    pub(crate) usage: Usage,
    pub(crate) finish: Option<FinishReason>,
    /// Whether the engine has forgotten the sequence.
    pub(crate) lost: bool,
}

impl Generation {
    pub(crate) fn new(id: u64, prompt: &str, sampling: Sampling) -> Self {
        Self::with_input(id, In::One(Value::text(prompt)), request(prompt, sampling))
    }

    pub(crate) fn with_input(id: u64, prompt: In, request: Arc<Request>) -> Self {
        Self {
            id,
            request,
            prompt,
            tokens: vec![],
            text: String::new(),
            details: vec![],
            usage: Usage::default(),
            finish: None,
            lost: false,
        }
    }

    /// Returns the next step's op and row.
    pub(crate) fn next(&self) -> (&'static str, Row) {
        // The draw is named by the request's prompt, not by its id: the same request draws the same.
        let draw = 1 + self.tokens.len() as u64;
        let Some(&last) = self.tokens.last() else {
            return ("prefill", row(self.id, "prompt", self.prompt.clone(), draw, &self.request));
        };
        let mut row = row(self.id, "token", In::One(Value::token(last)), draw, &self.request);
        row.rebuild = self.lost.then(|| Arc::new(self.journal()));
        ("decode", row)
    }

    pub(crate) fn journal(&self) -> Journal {
        let inputs = [("prompt".into(), self.prompt.clone())].into_iter().collect();
        Journal { steps: vec![JournalStep { op: "prefill".into(), inputs, sampled: self.tokens.clone() }] }
    }

    pub(crate) fn take(&mut self, output: RowOutput) {
        self.lost = false;
        self.tokens.push(output.sampled.expect("a step samples"));
        for (port, value) in &output.outputs {
            match port.as_str() {
                "text" => self.text.push_str(value.as_text().unwrap()),
                "token" => assert_eq!(value.as_tokens().unwrap(), [output.sampled.unwrap()]),
                "detail" => self.details.push(value.as_json().unwrap().clone()),
                port => panic!("{port}"),
            }
        }
        assert_eq!(output.finish.is_some(), !output.stops.is_empty());
        self.usage.add(output.usage);
        self.finish = output.finish;
    }

    /// Runs the generation to its end, alone.
    pub(crate) fn run(mut self, rank: &Rank, engine: &mut dyn Engine) -> Self {
        while self.finish.is_none() {
            let (op, row) = self.next();
            let output = rank.finish(engine, op, row).unwrap();
            self.take(output);
        }
        engine.retire(RequestKey { id: self.id, attempt: 0 });
        self
    }

    /// What a client sees.
    pub(crate) fn seen(&self) -> (Vec<u32>, String, Usage, Option<FinishReason>) {
        (self.tokens.clone(), self.text.clone(), self.usage, self.finish)
    }
}

/// Drives generations side by side: each round runs one batch over the generations that `picks` lets through, whatever
/// their ops.
/// Rows that are told to go on or wait do so, as a node's queue would let them. In rounds that `loses` names, the
/// engine forgets everything first.
pub(crate) fn run_together(
    rank: &Rank,
    engine: &mut dyn Engine,
    mut generations: Vec<Generation>,
    mut picks: impl FnMut(usize, &Generation) -> bool,
    mut loses: impl FnMut(usize) -> bool,
) -> Vec<Generation> {
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for round in 0.. {
        assert!(round < 100_000, "the generations never end");
        if loses(round) {
            engine.reset();
            rows.clear();
            generations.iter_mut().for_each(|g| g.lost = !g.tokens.is_empty());
        }
        for generation in generations.iter().filter(|g| g.finish.is_none()) {
            rows.entry(generation.id).or_insert_with(|| generation.next().1);
        }
        if rows.is_empty() {
            return generations;
        }
        let of = |id: &u64| generations.iter().find(|g| g.id == *id).unwrap();
        let chosen: Vec<u64> = rows.keys().copied().filter(|id| picks(round, of(id))).collect();
        let batch = chosen.iter().map(|id| rows.remove(id).unwrap()).collect();
        for progress in rank.run_mixed(engine, batch) {
            match progress {
                RowProgress::Done(work, result) => {
                    let is_next = |g: &&mut Generation| g.finish.is_none() && g.next().1.work == work;
                    let generation = generations.iter_mut().find(is_next).expect("someone waits for it");
                    generation.take(result.unwrap());
                    if generation.finish.is_some() {
                        engine.retire(RequestKey { id: generation.id, attempt: 0 });
                    }
                }
                RowProgress::More(row) | RowProgress::Waiting(row) => {
                    rows.insert(row.key.id, row);
                }
            }
        }
    }
    generations
}
