//! The command line, as clap reads it.

mod bench;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::{BenchArgs, ModeArg, ScenarioArg};

/// Serves composite multimodal models as Walk Graphs, every node a supervised actor.
#[derive(Debug, Parser)]
#[command(name = "mstar", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// What to log, e.g. `info`, `debug`, `mstar_actors=trace`. Overrides RUST_LOG.
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// Add the scripted model `fake`, which needs no weights, for tests of everything around models.
    #[arg(long, global = true, hide = true)]
    pub(crate) fake: bool,

    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  mstar demo                                   fetch weights, ask a spoken question, serve
  mstar serve --config deployments/voice.toml  serve a deployment
  mstar run voice --text 'What is the capital of France?' --out reply.wav
  mstar graph voice | less                     draw a model's Walk Graph (Mermaid)
  mstar check my.toml                          find every mistake in a deployment file";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a deployment until Ctrl-C; then drain and exit.
    Serve(ServeArgs),
    /// Boot the default deployment, ask it a spoken question, show the answer and where the time went.
    Demo(DemoArgs),
    /// Fetch, verify and convert the weights of models.
    Pull(PullArgs),
    /// List the models of this build: what goes in, what comes out, where their weights lie.
    Models(DeploymentArgs),
    /// Draw a model's Walk Graph.
    Graph(GraphArgs),
    /// Check deployment files without starting anything: every problem with file, line and key.
    Check(CheckArgs),
    /// Send one request to a running server.
    Run(RunArgs),
    /// Measure a server under load as its clients notice it: this build's, or any other with OpenAI's endpoints.
    Bench(BenchArgs),
    /// Compare a model family with reference tensors, in float32, and print a JSON report.
    Verify(VerifyArgs),
}

/// Which deployment is meant.
#[derive(Debug, Args)]
pub(crate) struct DeploymentArgs {
    /// The deployment file. Default: the built-in deployments/voice.toml.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `mstar serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Which deployment.
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
    /// Listen here instead of where the deployment says, e.g. 127.0.0.1:8000; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
}

/// Arguments of `mstar demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Which deployment, and where to listen.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// Exit after the answer instead of going on to serve.
    #[arg(long)]
    pub(crate) once: bool,
    /// Where to write the spoken reply.
    #[arg(long, value_name = "FILE", default_value = "reply.wav")]
    pub(crate) out: PathBuf,
    /// Ask this recording instead of the bundled question (wav, flac, mp3 or ogg).
    #[arg(long, value_name = "FILE")]
    pub(crate) question: Option<PathBuf>,
}

/// Arguments of `mstar pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Models to pull for. Default: all that the deployment serves.
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<String>,
    /// Which deployment.
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}

/// Arguments of `mstar graph`.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// The model.
    pub(crate) model: String,
    /// Draw in Graphviz' DOT instead of Mermaid.
    #[arg(long)]
    pub(crate) dot: bool,
}

/// Arguments of `mstar check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Deployment files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Arguments of `mstar run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The model, as `mstar models` lists it.
    pub(crate) model: String,
    /// Text to send.
    #[arg(long, short)]
    pub(crate) text: Option<String>,
    /// A recording to send (wav, flac, mp3 or ogg).
    #[arg(long, value_name = "FILE")]
    pub(crate) audio: Option<PathBuf>,
    /// Write the spoken answer here as a wav file; asks for audio.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Wanted outputs, comma-separated. Default: text, and audio when --out is given.
    #[arg(long, value_name = "LIST")]
    pub(crate) outputs: Option<String>,
    /// An option for the model, e.g. -o temperature=0.7 -o voice=heart. May be repeated.
    #[arg(long = "option", short = 'o', value_name = "KEY=VALUE")]
    pub(crate) options: Vec<String>,
    /// The server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub(crate) server: String,
    /// The API key, when the server needs one. Default: MSTAR_API_KEY.
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
}

/// Arguments of `mstar verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The family: whisper_gemma or real.
    pub(crate) family: String,
    /// A folder with its reference tensors.
    pub(crate) dir: PathBuf,
    /// A folder with the recordings that references were made from (family `real`).
    #[arg(long, value_name = "DIR")]
    pub(crate) media: Option<PathBuf>,
    /// Which deployment's weight cache to use (family `real`).
    #[command(flatten)]
    pub(crate) deployment: DeploymentArgs,
}
