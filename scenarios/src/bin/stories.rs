//! Tells one of the stories and judges it: `cargo run --release -p mstar-scenarios --bin stories -- crash`.
//!
//! Progress goes to standard error, one JSON document to standard output. The exit status is 1 when an invariant did
//! not hold.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mstar_config::Environment;
use mstar_scenarios::{CancelStory, CrashStory, FloodStory, Report, STRUCK, Setting, StoryError, cancel, crash, flood};

/// Tells a story on the deployment that users get, and checks that it ends as it must.
#[derive(Parser)]
struct Cli {
    /// Which one.
    #[arg(value_enum)]
    story: Story,
    /// Serve the scripted model in the place of real weights.
    #[arg(long)]
    fake: bool,
    /// Names every random choice; SEED in the environment does so too.
    #[arg(long)]
    seed: Option<u64>,
    /// How many requests [default: crash 200, cancel 2000, flood 500].
    #[arg(long)]
    requests: Option<usize>,
    /// How often node actors die under `crash` [default: 50].
    #[arg(long)]
    panics: Option<u32>,
    /// Most requests at a time [default: 16].
    #[arg(long)]
    at_once: Option<usize>,
    /// Most requests that wait under `flood` [default: 64].
    #[arg(long)]
    queue: Option<usize>,
    /// Most tokens of an answer [default: crash and flood 12, cancel 8].
    #[arg(long)]
    max_tokens: Option<u32>,
}

/// The stories.
#[derive(Clone, Copy, ValueEnum)]
enum Story {
    /// Node actors die at random under mixed requests.
    Crash,
    /// Half of many clients go away at random moments.
    Cancel,
    /// More requests come at once than may wait.
    Flood,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let environment = Environment::read();
    let seed = match cli.seed {
        Some(seed) => seed,
        None => environment.seed().map_err(anyhow::Error::msg)?.unwrap_or(1),
    };
    let setting = Setting { environment, tell: |line| eprintln!("{line}"), ..Setting::new(cli.fake, seed) };
    expect_strikes();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads((cores / 4).clamp(1, 8)).enable_all().build()?;
    let report = runtime.block_on(async { tokio::spawn(tell(cli, setting)).await })??;
    println!("{}", serde_json::to_string_pretty(&report.document())?);
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn tell(cli: Cli, setting: Setting) -> Result<Report, StoryError> {
    match cli.story {
        Story::Crash => {
            let usual = CrashStory::default();
            let story = CrashStory {
                requests: cli.requests.unwrap_or(usual.requests),
                panics: cli.panics.unwrap_or(usual.panics),
                at_once: cli.at_once.unwrap_or(usual.at_once),
                max_tokens: cli.max_tokens.unwrap_or(usual.max_tokens),
            };
            crash(&setting, story).await
        }
        Story::Cancel => {
            let usual = CancelStory::default();
            let story = CancelStory {
                requests: cli.requests.unwrap_or(usual.requests),
                at_once: cli.at_once.unwrap_or(usual.at_once),
                max_tokens: cli.max_tokens.unwrap_or(usual.max_tokens),
            };
            cancel(&setting, story).await
        }
        Story::Flood => {
            let usual = FloodStory::default();
            let story = FloodStory {
                requests: cli.requests.unwrap_or(usual.requests),
                queue: cli.queue.unwrap_or(usual.queue),
                at_once: cli.at_once.unwrap_or(usual.at_once),
                max_tokens: cli.max_tokens.unwrap_or(usual.max_tokens),
            };
            flood(&setting, story).await
        }
    }
}

/// Keeps quiet about panics that the story itself provokes.
fn expect_strikes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload_as_str().is_some_and(|message| message.starts_with(STRUCK)) {
            usual(panic);
        }
    }));
}
