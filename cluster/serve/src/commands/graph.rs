//! `mstar graph`: draws a model's Walk Graph.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use mstar_graph::draw;

use crate::cli::GraphArgs;
use crate::commands::Setting;

/// Writes the drawing to standard output.
pub(crate) fn draw(args: &GraphArgs, setting: &Setting) -> Result<ExitCode> {
    let Some(model) = setting.zoo.model(&args.model) else {
        let known: Vec<String> = setting.zoo.entries().iter().map(|e| e.model.id().as_str().to_owned()).collect();
        bail!("no model {:?} in this build; there are {}", args.model, known.join(", "));
    };
    let drawing = if args.dot { draw::dot(model.graph()) } else { draw::mermaid(model.graph()) };
    let written = writeln!(std::io::stdout(), "{}", drawing.trim_end());
    // A pager that closed its end has seen enough.
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
