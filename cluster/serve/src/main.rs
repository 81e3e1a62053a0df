//! The binary `mstar`: one command to serve, one to ask, and what is needed around them.

mod cli;
mod client;
mod commands;
mod deployment;
mod output;
mod pulling;
mod recording;

use std::process::ExitCode;

use clap::Parser as _;
use mstar_config::Environment;

use crate::cli::Cli;
use crate::output::{Closed, note};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let environment = Environment::read();
    let outcome = runtime().and_then(|runtime| runtime.block_on(commands::run(cli, environment)));
    outcome.unwrap_or_else(|error| {
        if error.is::<Closed>() {
            return ExitCode::SUCCESS;
        }
        note(format_args!("mstar: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Returns the runtime that carries messages: few workers, for computing has threads of its own.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = (cores / 4).clamp(1, 8);
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?)
}
