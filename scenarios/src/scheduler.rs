//! How requests get along with each other on real weights: how many rows of streams that run side by side share a batch,
//! what a long prompt does to the gaps of replies, what a prompt costs that was read before, and which share of a step
//! is the runtime's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mstar_actors::{ClientStream, Submit};
use mstar_config::{Deployment, Environment};
use mstar_contract::{ClientEvent, Message, Part, Request, Role, Sampling, Task, TraceContext};
use mstar_graph::Modality;
use mstar_runtime::{Boot, Cluster};
use mstar_zoo::Zoo;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::Spread;
use crate::error::StoryError;
use crate::machine::{load, rounded};

/// A deployment under measurement.
#[derive(Clone)]
struct Desk {
    cluster: Arc<Cluster>,
}

/// When a stream gave something, from its submission on.
struct Times {
    submitted: Instant,
    pieces: Vec<Instant>,
    /// When it ended.
    ended: Instant,
}

const MODEL: &str = "smollm2";
const NODE: &str = "smollm2.llm";
const DEPLOYMENT: &str = "[model.smollm2]\nprecision = 'bf16'\n[[rank]]\nname = 'cpu0'\n";
/// Streams that run side by side.
const STREAMS: usize = 16;
/// Replies that go on while a long prompt comes.
const REPLIES: usize = 4;
/// How long they go on without it.
const ALONE: Duration = Duration::from_secs(2);
/// Words of the long prompt: more than 4,000 tokens.
const WORDS: usize = 4000;
/// The model's end tokens.
const END_TOKENS: [u32; 2] = [0, 2];
/// What every measured reply is asked for.
const STORY: &str = "Write a very long story about a lighthouse keeper, chapter by chapter, with every detail.";

// --- impl Desk ---

impl Desk {
    async fn open(environment: &Environment) -> Result<Self, StoryError> {
        let zoo = Zoo::standard()?;
        let deployment = Deployment::parse("the scheduler's deployment", DEPLOYMENT, &zoo.catalogue());
        let deployment = deployment.map_err(|report| StoryError::Deployment(report.to_string()))?;
        let boot = Boot { environment: environment.clone(), ..Boot::new(deployment, zoo) };
        Ok(Self { cluster: Arc::new(Cluster::boot(boot).await.map_err(Box::new)?) })
    }

    async fn submit(&self, name: &str, text: &str, max_tokens: u32) -> Result<(Instant, ClientStream), StoryError> {
        let Some(served) = self.cluster.served(MODEL) else {
            return Err(StoryError::Answer(format!("model {MODEL} is not served")));
        };
        let request = Request {
            id: name.into(),
            tenant: Default::default(),
            model: MODEL.into(),
            task: Task::Chat,
            messages: vec![Message { role: Role::User, parts: vec![Part::Text(text.into())] }],
            media: Vec::new(),
            outputs: [Modality::Text].into(),
            sampling: Sampling {
                temperature: Some(0.8),
                max_tokens: Some(max_tokens),
                // Nobody ends early: a stream less would be a smaller batch.
                logit_bias: END_TOKENS.map(|token| (token, -100.0)).into(),
                ..Sampling::default()
            },
            seed: name.bytes().map(u64::from).sum(),
            options: BTreeMap::new(),
        };
        let served = Arc::clone(served);
        let submit = Submit { request: Arc::new(request), served, deadline: None, trace: TraceContext::default() };
        let submitted = Instant::now();
        let stream = self.cluster.ingress().submit(submit).await;
        Ok((submitted, stream.map_err(|source| StoryError::Request { what: "a measured reply", source })?))
    }

    /// Reads a reply to its end and returns when its pieces came; adds a permit to `begun` when it has begun.
    async fn read(&self, name: &str, text: &str, max_tokens: u32, begun: &Semaphore) -> Result<Times, StoryError> {
        let mut pieces = Vec::new();
        let outcome = self.follow(name, text, max_tokens, &mut pieces, begun).await;
        // One that ends without a piece is not waited for.
        begun.add_permits(usize::from(pieces.is_empty()));
        outcome.map(|submitted| Times { submitted, pieces, ended: Instant::now() })
    }

    /// Submits a request, notes when its pieces come, and returns when it was submitted.
    async fn follow(
        &self,
        name: &str,
        text: &str,
        max_tokens: u32,
        pieces: &mut Vec<Instant>,
        begun: &Semaphore,
    ) -> Result<Instant, StoryError> {
        let (submitted, mut stream) = self.submit(name, text, max_tokens).await?;
        loop {
            match stream.next().await {
                Some(ClientEvent::Emitted(_)) => {
                    pieces.push(Instant::now());
                    begun.add_permits(usize::from(pieces.len() == 1));
                }
                Some(ClientEvent::Done(_)) | None => return Ok(submitted),
                Some(ClientEvent::Failed(source)) => {
                    return Err(StoryError::Request { what: "a measured reply", source });
                }
            }
        }
    }

    /// Reads a reply to its end, with nobody waiting for its beginning.
    async fn read_alone(&self, name: &str, text: &str, max_tokens: u32) -> Result<Times, StoryError> {
        self.read(name, text, max_tokens, &Semaphore::new(0)).await
    }

    /// Begins replies to be read side by side and returns them when every one of them has begun.
    async fn begin(&self, name: &str, replies: usize, max_tokens: u32) -> JoinSet<Result<Times, StoryError>> {
        let begun = Arc::new(Semaphore::new(0));
        let mut reading = JoinSet::new();
        for n in 0..replies {
            let (desk, begun, name) = (self.clone(), Arc::clone(&begun), format!("{name}-{n}"));
            let text = format!("{STORY} Part {n}.");
            reading.spawn(async move { desk.read(&name, &text, max_tokens, &begun).await });
        }
        let _ = begun.acquire_many(replies as u32).await;
        reading
    }

    /// Returns a metric of the node under measurement, summed over what it is told apart by beside `with`.
    fn metric(&self, name: &str, with: &str) -> f64 {
        let text = self.cluster.gateway().operations.metrics();
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let ours = lines.filter(|line| line.contains(&format!("node=\"{NODE}\"")) && line.contains(with));
        ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    async fn side_by_side(&self) -> Result<Value, StoryError> {
        let counted = || {
            let decode = "op=\"decode\"";
            (self.metric("mstar_batch_rows_total", decode), self.metric("mstar_batches_total", decode))
        };
        let mut all = self.begin("side", STREAMS, 200).await;
        let before = counted();
        let first = all.join_next().await;
        let after = counted();
        let mut pieces = 0;
        for times in first.into_iter().chain(all.join_all().await.into_iter().map(Ok)) {
            pieces += times.map_err(|_| StoryError::Answer("a reader broke".to_owned()))??.pieces.len();
        }
        let (rows, batches) = (after.0 - before.0, after.1 - before.1);
        Ok(json!({"streams": STREAMS, "mean_batch": rounded(rows / batches, 2), "batches": batches, "pieces": pieces}))
    }

    async fn beside_a_long_prompt(&self) -> Result<Value, StoryError> {
        let replies = self.begin("beside", REPLIES, 600).await;
        tokio::time::sleep(ALONE).await;
        let (submitted, mut stream) = self.submit("long", &long_prompt("first"), 4).await?;
        stream.next().await;
        let answered = Instant::now();
        while stream.next().await.is_some() {}
        let (mut before, mut beside, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for times in replies.join_all().await {
            let times = times?;
            let mut own = Vec::new();
            for pair in times.pieces.windows(2).skip(4) {
                let gap = (pair[1] - pair[0]).as_secs_f64() * 1e3;
                own.push(gap);
                if pair[1] < submitted {
                    before.push(gap)
                }
                if pair[0] > submitted && pair[1] < answered {
                    beside.push(gap)
                }
            }
            ratios.extend(Spread::of(own).map(|own| rounded(own.most / own.p50, 2)));
        }
        Ok(json!({
            "replies": REPLIES,
            "gap_before_ms": quantiles(before),
            "gap_beside_ms": quantiles(beside),
            "longest_gap_over_median_of_each_reply": ratios,
            "first_token_of_the_prompt_ms": rounded((answered - submitted).as_secs_f64() * 1e3, 0),
        }))
    }

    async fn prompt_again(&self) -> Result<Value, StoryError> {
        let mut times = Vec::new();
        for name in ["cold", "warm"] {
            let reply = self.read_alone(name, &long_prompt("second"), 4).await?;
            // A reply need not have text: then its end tells.
            let first = reply.pieces.first().copied().unwrap_or(reply.ended);
            times.push(rounded((first - reply.submitted).as_secs_f64() * 1e3, 1));
        }
        let (asked, found) = ("mstar_prompt_tokens_total", "mstar_prompt_tokens_reused_total");
        Ok(json!({
            "first_token_ms": {"cold": times[0], "warm": times[1]},
            "prompt_tokens_so_far": self.metric(asked, ""),
            "reused_tokens_so_far": self.metric(found, ""),
        }))
    }

    async fn share_of_the_runtime(&self) -> Result<Value, StoryError> {
        let seconds = || (self.metric("mstar_batch_seconds_sum", ""), self.metric("mstar_batch_seconds_count", ""));
        let before = seconds();
        let times = self.read_alone("share", STORY, 400).await?;
        let after = seconds();
        let (ran, batches) = (after.0 - before.0, after.1 - before.1);
        let Some((first, last)) = times.pieces.first().zip(times.pieces.last()) else {
            return Err(StoryError::Answer("the reply is empty".to_owned()));
        };
        let step = (*last - *first).as_secs_f64() * 1e6 / (times.pieces.len() - 1).max(1) as f64;
        // The prompt's pass counts as one of the batches: it is a small part of them.
        let engine = ran * 1e6 / batches;
        Ok(json!({
            "step_us": rounded(step, 1), "engine_us": rounded(engine, 1), "runtime_us": rounded(step - engine, 1),
            "share": rounded((step - engine) / step, 4), "batches": batches, "pieces": times.pieces.len(),
        }))
    }
}

/// Measures and returns the figures.
pub async fn scheduler(environment: &Environment) -> Result<Value, StoryError> {
    let desk = Desk::open(environment).await?;
    desk.read_alone("warm-up", STORY, 32).await?;
    let before = load();
    let figures = json!({
        "share_of_the_runtime": desk.share_of_the_runtime().await?,
        "side_by_side": desk.side_by_side().await?,
        "beside_a_long_prompt": desk.beside_a_long_prompt().await?,
        "prompt_again": desk.prompt_again().await?,
        "load": [before, load()],
    });
    if let Some(cluster) = Arc::into_inner(desk.cluster) {
        cluster.shutdown().await;
    }
    Ok(figures)
}

fn long_prompt(name: &str) -> String {
    let words = ["river", "stone", "lamp", "cloud", "garden", "letter", "window", "train", "clock", "bridge", "road"];
    let word = |n: usize| words[(n * n + n / 7 + name.len()) % words.len()];
    let text: Vec<&str> = (0..WORDS).map(word).collect();
    format!("The {name} list: {}. Which word comes most often?", text.join(" "))
}

fn quantiles(gaps: Vec<f64>) -> Value {
    let count = gaps.len();
    let mut spread = Spread::of(gaps).map_or(json!({}), |spread| spread.json(2));
    spread["gaps"] = json!(count);
    spread
}
