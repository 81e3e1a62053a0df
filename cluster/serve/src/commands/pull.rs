//! `mstar pull`: makes the weights of models ready.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use mstar_weights::Cache;

use crate::cli::PullArgs;
use crate::commands::{Setting, models};
use crate::deployment;
use crate::output::say;
use crate::pulling::Bars;

/// Fetches, verifies and converts, and says where things lie.
pub(crate) async fn pull(args: &PullArgs, setting: &Setting) -> Result<ExitCode> {
    let read = deployment::read(&args.deployment, &setting.zoo)?;
    let wanted: Vec<String> = match args.models.is_empty() {
        true => read.deployment.served().map(str::to_owned).collect(),
        false => args.models.clone(),
    };
    let mut packages = BTreeSet::new();
    for id in &wanted {
        let entry = setting.zoo.entries().iter().find(|entry| entry.model.id() == id.as_str());
        let entry = entry.ok_or_else(|| anyhow!("no model {id:?} in this build; `mstar models` lists them"))?;
        packages.extend(models::packages(&setting.zoo, entry));
    }
    let cache = read.deployment.cache_dir(&setting.environment);
    let cache = Cache::at(cache.context("no folder for weights: set MSTAR_CACHE or HOME, or [cache] dir")?);
    let bars = Bars::new();
    for package in packages {
        let (cache, hears) = (cache.clone(), bars.clone());
        let task = tokio::task::spawn_blocking(move || {
            mstar_weights::pull(package, &cache, &mut |event| hears.show(package, event))
        });
        let dir = task.await??;
        bars.clear();
        say(format_args!("{package}: {}", dir.path().display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
