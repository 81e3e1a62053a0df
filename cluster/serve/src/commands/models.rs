//! `mstar models`: lists the models of this build.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use mstar_contract::WeightSource;
use mstar_graph::Modality;
use mstar_weights::{Cache, package};
use mstar_zoo::{Entry, Zoo};

use crate::cli::DeploymentArgs;
use crate::commands::Setting;
use crate::deployment;
use crate::output::say;

/// Prints each model with what goes in and comes out, its walks, and where its weights lie.
pub(crate) fn list(args: &DeploymentArgs, setting: &Setting) -> Result<ExitCode> {
    let read = deployment::read(args, &setting.zoo)?;
    let cache = read.deployment.cache_dir(&setting.environment).map(Cache::at);
    for entry in setting.zoo.entries() {
        let card = entry.model.card();
        let id = entry.model.id();
        let served = read.deployment.served().any(|served| served == id.as_str());
        let note = match (served, read.deployment.default_model == id.as_str()) {
            (true, true) => "  (the default model)",
            (true, false) => "",
            (false, _) => "  (not served by this deployment)",
        };
        say(format_args!("{id}{note}\n    {}", card.summary))?;
        say(format_args!("    takes {}; gives {}", names(&card.inputs), names(&card.outputs)))?;
        let walks: Vec<&str> = entry.model.graph().walks().map(|(_, walk)| walk.name.as_str()).collect();
        say(format_args!("    walks: {}", walks.join(", ")))?;
        if !card.voices.is_empty() {
            say(format_args!("    voices: {}", card.voices.join(", ")))?;
        }
        if !card.options.is_empty() {
            say(format_args!("    options: {}", card.options.join(", ")))?;
        }
        for name in packages(&setting.zoo, entry) {
            say(format_args!("    weights {name}: {}", place(name, cache.as_ref())))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the packages that a model's walks need, those of other models' components included.
pub(crate) fn packages(zoo: &Zoo, entry: &Entry) -> BTreeSet<&'static str> {
    let components = entry.model.graph().nodes().filter_map(|(_, id)| zoo.component(id.as_str()));
    let sources = components.filter_map(|component| match component.weights() {
        WeightSource::Package(name) => Some(name),
        WeightSource::None => None,
    });
    sources.collect()
}

fn place(name: &str, cache: Option<&Cache>) -> String {
    let Some(package) = package(name) else { return "not a package of this build".to_owned() };
    let size: u64 = package.wheels.iter().map(|wheel| wheel.bytes).sum();
    match cache.map(|cache| cache.ready(package)) {
        Some(Some(dir)) => format!("{} ({})", dir.path().display(), package.about),
        _ => format!("not here yet, `mstar pull` fetches {} MB ({})", size.div_ceil(1_000_000), package.about),
    }
}

fn names(modalities: &[Modality]) -> String {
    let names: Vec<String> = modalities.iter().map(Modality::to_string).collect();
    names.join(", ")
}
