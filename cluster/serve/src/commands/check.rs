//! `mstar check`: finds every mistake in deployment files without starting anything, and what they name on disk that is
//! not there.

mod on_disk;

use std::path::Path;
use std::process::ExitCode;

use mstar_config::Deployment;
use mstar_runtime::NodeTable;

use crate::cli::{CheckArgs, DeploymentArgs};
use crate::commands::Setting;
use crate::commands::check::on_disk::{Finding, findings};
use crate::deployment;
use crate::output::{note, say};

/// Checks the files; problems go to standard error, and one is enough to fail. What only delays a boot is a warning.
pub(crate) fn check(args: &CheckArgs, setting: &Setting) -> anyhow::Result<ExitCode> {
    let mut wrong = 0;
    let mut said = Ok(());
    for file in &args.files {
        match one(file, setting) {
            Ok(line) => said = said.and_then(|()| say(format_args!("{}: {line}", file.display()))),
            Err(problems) => {
                wrong += 1;
                note(format_args!("{problems:#}"));
            }
        }
    }
    if wrong > 0 {
        return Ok(ExitCode::FAILURE);
    }
    said.map(|()| ExitCode::SUCCESS)
}

fn one(file: &Path, setting: &Setting) -> anyhow::Result<String> {
    let read = deployment::read(&DeploymentArgs { config: Some(file.to_path_buf()) }, &setting.zoo)?;
    let table = NodeTable::of(&read.deployment, &setting.zoo)?;
    let (errors, warnings): (Vec<Finding>, Vec<Finding>) =
        findings(&read, setting).into_iter().partition(|finding| finding.prevents_boot);
    for finding in errors.iter().chain(&warnings) {
        note(finding.line(&read));
    }
    match errors.len() {
        0 => Ok(summary(&read.deployment, &table)),
        1 => anyhow::bail!("1 problem in {}", read.name),
        count => anyhow::bail!("{count} problems in {}", read.name),
    }
}

/// Says what a deployment comes to.
fn summary(deployment: &Deployment, table: &NodeTable) -> String {
    let models: Vec<&str> = deployment.served().collect();
    let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let (nodes, ranks) = (plural(table.nodes.len(), "node"), plural(deployment.ranks.len(), "rank"));
    format!("ok: serves {} with {nodes} on {ranks} at {}", models.join(", "), deployment.listen)
}
