//! The arguments of `mstar bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DeploymentArgs;

/// Arguments of `mstar bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// What a request is.
    #[arg(value_enum)]
    pub(crate) scenario: ScenarioArg,
    /// Ask this server, e.g. http://127.0.0.1:8000. Default: the deployment is booted in this process.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The model. Default: the one that the built-in deployment has for the scenario.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// How requests follow each other.
    #[arg(long, value_enum, default_value = "closed")]
    pub(crate) mode: ModeArg,
    /// How many at a time (modes waves and closed); a row for each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) concurrency: Vec<u16>,
    /// How many requests a second (mode open); a row for each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = rate)]
    pub(crate) rate: Vec<f64>,
    /// Requests of a row. Default: 4 for each that run at a time, 16 at least.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<usize>,
    /// Requests before each row that are not counted. Default: as many as run at a time.
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<usize>,
    /// Most tokens of an answer.
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) max_tokens: u32,
    /// Let every request say this, in the place of texts of its own.
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// Words that prompts are made longer by.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) prompt_words: usize,
    /// Names every random choice: the texts and the arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// The recording that is heard (transcribe, converse). Default: the bundled question.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(crate) audio: Option<PathBuf>,
    /// Converse by text instead of a recording.
    #[arg(long)]
    pub(crate) text: bool,
    /// A field that is added to every request, e.g. -f ignore_eos=true. May be repeated.
    #[arg(long = "field", short = 'f', value_name = "KEY=VALUE")]
    pub(crate) fields: Vec<String>,
    /// Seconds that a request may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) deadline: u64,
    /// The process of a server on this machine, whose memory is then told.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// The API key, when the server needs one. Default: MSTAR_API_KEY.
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Which deployment is booted.
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

const EXAMPLES: &str = "What is told, for each row:
  first text, first audio   milliseconds until a client has something (50th, 95th and 99th percentile)
  gap                       milliseconds between two pieces of text
  rtf                       seconds of work for a second of audio: below 1 a listener need not wait
  in time                   share of audio pieces that are there when the one before them ends, for a listener who
                            starts with the first
  mean batch                rows that a node computes at a time, where the server tells under /metrics

Examples:
  mstar bench chat                                         boots the built-in deployment and asks it 1, 4 and 16 at a time
  mstar bench converse --concurrency 1,8 --json > row.json
  mstar bench chat --mode open --rate 0.5,1,2 --requests 60
  mstar bench chat --server http://127.0.0.1:8080 --model any --concurrency 16    any server with OpenAI's endpoints";

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScenarioArg {
    /// A streamed chat completion, over /v1/chat/completions.
    Chat,
    /// A text that is spoken, over /v1/audio/speech.
    Speak,
    /// A recording that is written down, over /v1/audio/transcriptions.
    Transcribe,
    /// A spoken question that text and audio answer, over /generate.
    Converse,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// All of a wave at one moment, the next wave when all have ended.
    Waves,
    /// Each client asks again as soon as it was answered.
    Closed,
    /// At random moments (Poisson), however long answers take; times count from the moment a request was due.
    Open,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("must be a number above 0".to_owned()),
    }
}
