//! What the runtime costs, measured with engines that compute nothing: `cargo run --release --bin overhead`.
//!
//! Prints JSON: microseconds per decode step (walker, node, compute thread and back) alone and in a batch of 16, what
//! waking a parked compute thread adds, and microseconds per item of a stream between two nodes; under `http`, what a
//! trivial request and each token of a streamed answer cost a client of the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use mstar_actors::{
    BatchLimits, Binding, BoundWalks, DeviceHandle, DeviceSpec, IngressArgs, IngressHandle, IngressLimits, NodeArgs,
    NodeIx, Routes, Served, Submit, SupervisionBridge, ThreadDevice,
};
use mstar_contract::{
    ClientEvent, Engine, EngineUsage, ExecuteCx, Gauge, Invalid, Model, ModelCard, NextWalk, OpDecl, Plan, Recovery,
    Request, RequestKey, Row, RowOutput, RowProgress, Sampling, Task, TraceContext, Value,
};
use mstar_graph::{
    Bound, ChunkPolicy, Graph, GraphBuilder, ModelId, Port, Stream, dynamic_loop, loop_over_stream, repeat, step,
};
use mstar_kernels::Cx;
use mstar_scenarios::Spread;
use mstar_supervisor::{SupervisorRef, SupervisorSpec};
use tokio::time::Instant;

/// Steps of a measured loop.
const STEPS: u32 = 5000;
/// Requests of one step.
const REQUESTS: usize = 4000;
/// Items that a producing step puts into its stream.
const ITEMS: usize = 64;
/// Long enough for a compute thread to park.
const PAUSE: Duration = Duration::from_millis(2);
const WITHIN: Duration = Duration::from_secs(60);

/// When batches began, and how many rows they had.
type Beats = Arc<Mutex<Vec<(Instant, usize)>>>;

/// Answers every row at once.
#[derive(Clone)]
struct Idle {
    beats: Beats,
    token: (Port, Value),
    item: (Port, Value),
}

/// Walks for each measurement.
struct Measured {
    graph: Arc<Graph>,
}

/// One walk per partition, as the request's id says.
struct Walks(Vec<NextWalk>);

/// The deployment under measurement.
struct Bench {
    ingress: IngressHandle,
    served: Arc<Served>,
    beats: Beats,
    _supervisor: SupervisorRef,
}

// --- impl Idle ---

impl Engine for Idle {
    fn execute(&mut self, rows: Vec<Row>, _: &ExecuteCx<'_>) -> Vec<RowProgress> {
        if rows.first().is_some_and(|row| row.op.as_str() == "decode") {
            let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
            beats.push((Instant::now(), rows.len()));
        }
        let answer = |row: Row| {
            let mut output = RowOutput::default();
            match row.op.as_str() {
                "decode" => output.outputs.push(self.token.clone()),
                "emit" => output.outputs.extend(std::iter::repeat_n(&self.item, ITEMS).cloned()),
                _ => {}
            }
            RowProgress::Done(row.work, Ok(output))
        };
        rows.into_iter().map(answer).collect()
    }

    fn retire(&mut self, _: RequestKey) {}

    fn reset(&mut self) {}

    fn usage(&self) -> EngineUsage {
        EngineUsage::default()
    }
}

// --- impl Measured ---

impl Measured {
    fn new() -> Result<Self> {
        let bound = || Bound::from_request("steps", 10_000_000);
        let decode = || step("fast", "decode").back("token", "fast.decode", "token").input("token");
        let emit = repeat("emitting", bound(), step("fast", "emit").input("token").stream_out("item", "items"));
        let take = loop_over_stream("taking", step("slow", "take").stream_in("items", "items"));
        let mut graph = GraphBuilder::new();
        graph
            .node("fast", "idle.fast")
            .node("slow", "idle.slow")
            .partition("main")
            .partition("other")
            .stream(Stream::new("items", "main", "other", ChunkPolicy::Fixed(ITEMS as u64)).credit(1024))
            .walk("main", "decode", dynamic_loop("decoding", bound(), decode()))
            .walk("main", "emit", emit)
            .walk("other", "take", take);
        Ok(Self { graph: graph.build().map_err(|problems| anyhow!("{problems}"))? })
    }
}

impl Model for Measured {
    fn id(&self) -> ModelId {
        "idle".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn card(&self) -> ModelCard {
        ModelCard::default()
    }

    fn plan(&self, request: &Arc<Request>) -> std::result::Result<Box<dyn Plan>, Invalid> {
        let (walk, _) = request.id.split_once(' ').unwrap_or((&request.id, ""));
        let steps = request.sampling.max_tokens.unwrap_or(STEPS);
        let mut walks = vec![NextWalk::new("main", walk).input("token", Value::token(1)).limit("steps", steps)];
        if walk == "emit" {
            walks.push(NextWalk::new("other", "take"));
        }
        Ok(Box::new(Walks(walks)))
    }
}

impl Plan for Walks {
    fn begin(&self) -> Vec<NextWalk> {
        self.0.clone()
    }
}

// --- impl Bench ---

impl Bench {
    async fn start() -> Result<Self> {
        let routes = Routes::new(["fast", "slow"]);
        let beats: Beats = Arc::default();
        let ops: Arc<[OpDecl]> = Arc::new([
            OpDecl::new("decode", &["token"], &["token"]),
            OpDecl::new("emit", &["token"], &["item"]),
            OpDecl::new("take", &["items"], &[]),
        ]);
        let mut children = Vec::new();
        for node in routes.nodes() {
            let device = rank(&routes, node, &beats).await?;
            let args = NodeArgs::new(node, Arc::clone(&ops), Recovery::Redo, device, Arc::clone(&routes));
            children.push(NodeArgs { limits: BatchLimits::default(), ..args }.child());
        }
        let ingress = IngressArgs::new(IngressLimits::default(), Arc::clone(&routes));
        let handle = ingress.handle();
        children.push(ingress.child());
        let bridge = Arc::new(SupervisionBridge::new(routes));
        let supervisor = SupervisorRef::start(SupervisorSpec::new(children), bridge).await?;
        supervisor.settled(WITHIN).await?;
        let model = Arc::new(Measured::new()?);
        let bind = |(at, (node, component)): (u32, (&mstar_graph::NodeName, &mstar_graph::ComponentId))| Binding {
            node: node.clone(),
            component: component.clone(),
            walks: BoundWalks::All,
            replicas: vec![NodeIx(at)],
            ops: Arc::clone(&ops),
            recovery: Recovery::Redo,
        };
        let bindings = (0..).zip(model.graph.nodes()).map(bind).collect();
        let served = Arc::new(Served::new(model, bindings)?);
        Ok(Self { ingress: handle, served, beats, _supervisor: supervisor })
    }

    /// Serves `rows` requests of a walk at once and returns how long they took.
    async fn run(&self, walk: &str, rows: usize, steps: u32) -> Result<Duration> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let start = Instant::now();
        let mut streams = Vec::new();
        for row in 0..rows {
            let request = Arc::new(request(&format!("{walk} {row}"), steps));
            let submit =
                Submit { request, served: Arc::clone(&self.served), deadline: None, trace: TraceContext::default() };
            streams.push(self.ingress.submit(submit).await?);
        }
        for mut stream in streams {
            match stream.next().await.context("a request ended without an end")? {
                ClientEvent::Done(_) => {}
                event => return Err(anyhow!("a request did not end well: {event:?}")),
            }
        }
        Ok(start.elapsed())
    }

    /// Serves requests of one step, so many at a time, and returns how many a second.
    async fn requests(&self, at_once: usize) -> Result<f64> {
        let rounds = REQUESTS / at_once;
        let start = Instant::now();
        for _ in 0..rounds {
            self.run("decode", at_once, 1).await?;
        }
        Ok((rounds * at_once) as f64 / start.elapsed().as_secs_f64())
    }

    /// Returns how long a request of one step takes, in microseconds, when each comes so long after the one before.
    async fn request(&self, pause: Duration) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..REQUESTS / 10 {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            times.push(self.run("decode", 1, 1).await?.as_secs_f64() * 1e6);
        }
        Ok(Spread::of(times).map_or(f64::NAN, |spread| spread.p50))
    }

    /// Returns how many rows the batches had, on average.
    fn mean_rows(&self) -> f64 {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        beats.iter().map(|(_, rows)| *rows as f64).sum::<f64>() / beats.len().max(1) as f64
    }

    /// Returns the times between batches of so many rows, in microseconds, and the share of such batches.
    fn intervals(&self, rows: usize) -> (Option<Spread>, f64) {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = beats.windows(2).filter(|pair| pair[0].1 == rows && pair[1].1 == rows);
        let times: Vec<f64> = whole.map(|pair| (pair[1].0 - pair[0].0).as_secs_f64() * 1e6).collect();
        let share = times.len() as f64 / beats.len().max(1) as f64;
        (Spread::of(times), share)
    }
}

async fn rank(routes: &Arc<Routes>, node: NodeIx, beats: &Beats) -> Result<DeviceHandle> {
    let (name, gauge) = (routes.name(node), Gauge::new(routes.name(node)));
    let spec = DeviceSpec { name: name.into(), cx: Cx::with_threads(1)?, gauge, routes: Arc::clone(routes) };
    let device = DeviceHandle::Thread(ThreadDevice::start(spec)?);
    let engine = Idle {
        beats: Arc::clone(beats),
        token: ("token".into(), Value::token(1)),
        // Bytes that nobody counts: two threads that count one value would measure its cache line.
        item: ("item".into(), Value::Bytes(bytes::Bytes::from_static(b"item"))),
    };
    device.install(node, Box::new(move |_, _| Ok(Box::new(engine.clone()))), WITHIN).await?;
    Ok(device)
}

fn request(id: &str, steps: u32) -> Request {
    let sampling = Sampling { max_tokens: Some(steps), ..Sampling::default() };
    Request { sampling, ..Request::new(id, "idle", Task::Generate) }
}

async fn measure() -> Result<serde_json::Value> {
    let bench = Bench::start().await?;
    let mut steps = serde_json::Map::new();
    for rows in [1, 4, 16] {
        bench.run("decode", rows, STEPS / 10).await?;
        let took = bench.run("decode", rows, STEPS).await?;
        let (times, share) = bench.intervals(rows);
        let step = serde_json::json!({
            "mean_us": took.as_secs_f64() * 1e6 / f64::from(STEPS),
            "p50_us": times.map(|times| times.p50),
            "p99_us": times.map(|times| times.p99),
            "whole_batches": share,
            "mean_rows": bench.mean_rows(),
        });
        steps.insert(format!("batch_{rows}"), step);
    }
    bench.run("emit", 1, STEPS / 10).await?;
    let took = bench.run("emit", 1, STEPS).await?;
    let items = f64::from(STEPS) * ITEMS as f64;
    let (awake, parked) = (bench.request(Duration::ZERO).await?, bench.request(PAUSE).await?);
    let (alone, together) = (bench.requests(1).await?, bench.requests(16).await?);
    Ok(serde_json::json!({
        "decode_step": steps,
        "requests_per_second_without_http": { "one": alone, "sixteen": together },
        "request_of_one_step_us": { "awake": awake, "parked": parked, "waking_adds": parked - awake },
        "stream_item_us": took.as_secs_f64() * 1e6 / items,
    }))
}

/// What the runtime costs, measured with engines that compute nothing. Prints one JSON document.
#[derive(clap::Parser)]
struct Arguments {}

fn main() -> Result<()> {
    let Arguments {} = clap::Parser::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut figures = runtime.block_on(async { tokio::spawn(measure()).await })??;
    let http = mstar_scenarios::http_overhead(mstar_scenarios::HttpOverhead::default());
    figures["http"] = runtime.block_on(async { tokio::spawn(http).await })??;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
