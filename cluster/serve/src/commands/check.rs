//! `mstar check`: finds every mistake in deployment files without starting anything.

use std::path::Path;
use std::process::ExitCode;

use mstar_config::Deployment;
use mstar_runtime::NodeTable;

use crate::cli::{CheckArgs, DeploymentArgs};
use crate::commands::Setting;
use crate::deployment;

/// Checks the files; problems go to standard error, and one is enough to fail.
pub(crate) fn check(args: &CheckArgs, setting: &Setting) -> ExitCode {
    let mut wrong = 0;
    for file in &args.files {
        match one(file, setting) {
            Ok(line) => println!("{}: {line}", file.display()),
            Err(problems) => {
                wrong += 1;
                eprintln!("{problems:#}");
            }
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(file: &Path, setting: &Setting) -> anyhow::Result<String> {
    let read = deployment::read(&DeploymentArgs { config: Some(file.to_path_buf()) }, &setting.zoo)?;
    let table = NodeTable::of(&read.deployment, &setting.zoo)?;
    Ok(summary(&read.deployment, &table))
}

/// Says what a deployment comes to.
fn summary(deployment: &Deployment, table: &NodeTable) -> String {
    let models: Vec<&str> = deployment.served().collect();
    let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let (nodes, ranks) = (plural(table.nodes.len(), "node"), plural(deployment.ranks.len(), "rank"));
    format!("ok: serves {} with {nodes} on {ranks} at {}", models.join(", "), deployment.listen)
}
