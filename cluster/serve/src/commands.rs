//! The commands, one file each.

mod bench;
mod check;
mod demo;
mod graph;
mod models;
mod pull;
mod run;
mod serve;
mod timeline;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use mstar_config::{ApiKey, Environment};
use mstar_zoo::Zoo;

use crate::cli::{Cli, Command};

/// What every command starts from.
pub(crate) struct Setting {
    /// What the environment says.
    pub(crate) environment: Environment,
    /// The models of this build.
    pub(crate) zoo: Zoo,
    /// What to log, when somebody said.
    pub(crate) log: Option<String>,
}

/// Carries out a command.
pub(crate) async fn run(cli: Cli, environment: Environment) -> Result<ExitCode> {
    let zoo = if cli.fake { Zoo::with_fake()? } else { Zoo::standard()? };
    let log = cli.log.or_else(|| environment.log_filter.clone());
    let setting = Setting { environment, zoo, log };
    match cli.command {
        Command::Serve(args) => serve::serve(&args, setting).await,
        Command::Demo(args) => demo::demo(&args, setting).await,
        Command::Pull(args) => pull::pull(&args, &setting).await,
        Command::Models(args) => models::list(&args, &setting),
        Command::Graph(args) => graph::draw(&args, &setting),
        Command::Check(args) => check::check(&args, &setting),
        Command::Run(args) => run::run(&args, setting.key()).await,
        Command::Bench(args) => bench::bench(&args, setting).await,
        Command::Verify(args) => verify::verify(&args, &setting),
    }
}

// --- impl Setting ---

impl Setting {
    /// Returns the key that clients of this process show.
    pub(crate) fn key(&self) -> Option<String> {
        self.environment.api_keys.first().map(|key: &ApiKey| key.expose().to_owned())
    }
}
