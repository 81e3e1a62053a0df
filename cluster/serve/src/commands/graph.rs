//! `mstar graph`: draws a model's Walk Graph.

use std::process::ExitCode;

use anyhow::{Result, bail};
use mstar_graph::draw;

use crate::cli::GraphArgs;
use crate::commands::Setting;
use crate::output::say;

/// Writes the drawing to standard output.
pub(crate) fn draw(args: &GraphArgs, setting: &Setting) -> Result<ExitCode> {
    let Some(model) = setting.zoo.model(&args.model) else {
        let known: Vec<String> = setting.zoo.entries().iter().map(|e| e.model.id().as_str().to_owned()).collect();
        bail!("no model {:?} in this build; there are {}", args.model, known.join(", "));
    };
    let drawing = if args.dot { draw::dot(model.graph()) } else { draw::mermaid(model.graph()) };
    say(drawing.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
