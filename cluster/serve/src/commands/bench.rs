//! `mstar bench`: asks a server under load and tells what its clients notice.

use std::io::Write as _;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use mstar_runtime::Signals;
use mstar_scenarios::{Bench, Load, Question, Row, Scenario, Target, document, table};
use tokio::sync::{mpsc, oneshot};

use crate::cli::{BenchArgs, DeploymentArgs, ModeArg, ScenarioArg, ServeArgs};
use crate::commands::Setting;
use crate::commands::demo::QUESTION;
use crate::commands::run::{options, read_recording};
use crate::commands::serve::{Busy, Running};

/// Clients that ask from a thread of their own, so that they take no turns with the server they measure.
struct Clients {
    rows: mpsc::Receiver<Row>,
    thread: JoinHandle<Result<()>>,
    /// Dropped, it sends the clients away.
    _stay: oneshot::Sender<()>,
}

const LOOK: &str = "{msg:24!} {bar:30} {pos:>5} of {len:5} {elapsed:>4}";
/// Requests of a row where nobody said how many, and for each client.
const FEWEST: usize = 16;
const EACH: usize = 4;

/// Measures each load in turn and prints the rows: also those that were done when it is broken off.
pub(crate) async fn bench(args: &BenchArgs, mut setting: Setting) -> Result<ExitCode> {
    // What a server logs at its usual level would stand between the bars.
    setting.log.get_or_insert_with(|| "warn".to_owned());
    let question = question(args)?;
    let key = args.api_key.clone().or(setting.key());
    let mut rows = Vec::new();
    let (bench, outcome) = match &args.server {
        Some(url) => {
            let bench = plan(args, Target::find(url, key)?, question)?;
            let mut signals = Signals::take()?;
            let outcome = tokio::select! {
                done = measure(args, &bench, &mut rows) => done,
                signal = signals.next() => Err(anyhow!("{signal}")),
            };
            (bench, outcome)
        }
        None => {
            let deployment = DeploymentArgs { config: args.deployment.config.clone() };
            let serve = ServeArgs { deployment, listen: Some("127.0.0.1:0".to_owned()) };
            let mut running = Running::start(&serve, setting, Busy::Refuse, |_| {}).await?;
            let target = Target::find(&format!("http://{}", running.server.address()), key)?;
            let bench = Bench { pid: Some(std::process::id()), ..plan(args, target, question)? };
            let outcome = running.unless_asked(measure(args, &bench, &mut rows)).await;
            running.end().await?;
            (bench, outcome)
        }
    };
    tell(args, &bench, &rows)?;
    outcome?;
    if rows.iter().all(|row| row.answered == 0) {
        bail!("no request was answered");
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &BenchArgs, target: Target, question: Question) -> Result<Bench> {
    let scenario = scenario(args);
    Ok(Bench {
        target,
        scenario,
        model: args.model.clone().unwrap_or_else(|| scenario.usual_model().to_owned()),
        max_tokens: args.max_tokens,
        prompt: args.prompt.clone(),
        prompt_words: args.prompt_words,
        seed: args.seed,
        question,
        fields: options(&args.fields)?,
        pid: args.pid,
        deadline: Duration::from_secs(args.deadline),
    })
}

fn scenario(args: &BenchArgs) -> Scenario {
    match args.scenario {
        ScenarioArg::Chat => Scenario::Chat,
        ScenarioArg::Speak => Scenario::Speak,
        ScenarioArg::Transcribe => Scenario::Transcribe,
        ScenarioArg::Converse => Scenario::Converse,
    }
}

fn question(args: &BenchArgs) -> Result<Question> {
    if args.text {
        if args.scenario == ScenarioArg::Transcribe {
            bail!("--text: a transcription needs a recording");
        }
        return Ok(Question::Text);
    }
    let (name, bytes) = match &args.audio {
        Some(path) => read_recording(path)?,
        None => ("question.wav".to_owned(), QUESTION.to_vec()),
    };
    Question::recording(&name, bytes).with_context(|| name)
}

/// Returns the loads, each with how many requests it has and how many come before it.
fn loads(args: &BenchArgs) -> Vec<(Load, usize, usize)> {
    let sized = |load, at_once: usize| {
        let requests = args.requests.unwrap_or_else(|| FEWEST.max(EACH * at_once));
        (load, requests, args.warm_up.unwrap_or(at_once))
    };
    let several = args.concurrency.iter().map(|&at_once| usize::from(at_once));
    match args.mode {
        ModeArg::Waves => several.map(|at_once| sized(Load::Waves(at_once), at_once)).collect(),
        ModeArg::Closed => several.map(|at_once| sized(Load::Closed(at_once), at_once)).collect(),
        ModeArg::Open => args.rate.iter().map(|&rate| sized(Load::Open(rate), 1)).collect(),
    }
}

/// Measures the loads one after the other and adds a row for each.
async fn measure(args: &BenchArgs, bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let mut clients = Clients::start(bench.clone(), loads(args))?;
    while let Some(row) = clients.rows.recv().await {
        rows.push(row);
    }
    clients.thread.join().map_err(|_| anyhow!("the clients died"))?
}

fn tell(args: &BenchArgs, bench: &Bench, rows: &[Row]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&document(bench, rows))?)?;
    } else if !rows.is_empty() {
        let name = bench.scenario.name();
        writeln!(out, "{name} with model {} at {}, seed {}", bench.model, bench.target.url, bench.seed)?;
        writeln!(out, "{}three figures in a column: p50, p95, p99", table(rows))?;
    }
    Ok(())
}

// --- impl Clients ---

impl Clients {
    fn start(bench: Bench, loads: Vec<(Load, usize, usize)>) -> Result<Self> {
        let (stay, gone) = oneshot::channel::<()>();
        let (sender, rows) = mpsc::channel(1);
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = ask(&bench, &loads, &sender) => {}
                    _ = gone => {}
                }
            });
            Ok(())
        };
        let thread = std::thread::Builder::new().name("clients".to_owned()).spawn(work)?;
        Ok(Self { rows, thread, _stay: stay })
    }
}

async fn ask(bench: &Bench, loads: &[(Load, usize, usize)], rows: &mpsc::Sender<Row>) {
    for &(load, requests, warm_up) in loads {
        let (name, value) = load.label();
        let bar = ProgressBar::new((warm_up + requests) as u64).with_message(format!("{name} {value}"));
        bar.set_style(ProgressStyle::with_template(LOOK).expect("invariant: the template is well formed"));
        let moved = bar.clone();
        let row = bench.row(load, requests, warm_up, move |_| moved.inc(1)).await;
        bar.finish_and_clear();
        if rows.send(row).await.is_err() {
            return;
        }
    }
}
