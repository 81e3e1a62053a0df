//! From the tree to a [`Deployment`].

mod access;
mod models;
mod placements;
mod ranks;
mod sections;

use std::path::PathBuf;

use toml_edit::Document;

use crate::fields::{Complaint, Fields, Source};
use crate::{Catalogue, Deployment, Http, Report};

// --- impl Deployment ---

impl Deployment {
    /// Reads a deployment file, or reports everything that is wrong with it. `file` only names the file in the report.
    pub fn parse(file: &str, text: &str, catalogue: &Catalogue) -> Result<Deployment, Report> {
        let source = Source::new(file, text);
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(error) => {
                let what = error.message().trim().replace('\n', ", ");
                source.complain(&error.span().unwrap_or(0..0), "", Complaint::new(format!("not TOML: {what}")));
                return Err(source.report().expect("invariant: a problem was just reported"));
            }
        };
        let root = Fields::new(&source, String::new(), document.as_table(), 0..0);
        let deployment = read(root, catalogue);
        match source.report() {
            Some(report) => Err(report),
            None => Ok(deployment),
        }
    }
}

/// Reads everything; what could not be read has its default, and a problem in the source.
fn read(mut root: Fields<'_>, catalogue: &Catalogue) -> Deployment {
    let access = access::read(&mut root);
    let limits = root.table("limits").map(sections::limits).unwrap_or_default();
    let http = root.table("http").map(|fields| sections::http(fields, limits.body_bytes));
    let http = http.unwrap_or_else(|| Http::beside(limits.body_bytes));
    let tracing = root.table("tracing").map(sections::tracing).unwrap_or_default();
    let log = root.table("log").map(sections::log).unwrap_or_default();
    let metrics = root.table("metrics").map(sections::metrics).unwrap_or_default();
    let supervision = root.table("supervision").map(sections::supervision).unwrap_or_default();
    let cache_dir = root.table("cache").and_then(cache_dir);
    let ranks = ranks::read(&mut root);
    let (models, default_model) = models::read(&mut root, catalogue);
    let placements = placements::read(&mut root, catalogue, &models, &ranks);
    root.finish();
    Deployment {
        listen: access.listen,
        allow_unauthenticated: access.allow_unauthenticated,
        api_keys: access.api_keys,
        api_keys_file: access.api_keys_file,
        api_keys_env: access.api_keys_env,
        default_model,
        limits,
        http,
        tracing,
        log,
        metrics,
        supervision,
        cache_dir,
        ranks,
        models,
        placements,
    }
}

fn cache_dir(mut fields: Fields<'_>) -> Option<PathBuf> {
    let dir = fields.text("dir").map(|at| PathBuf::from(at.value));
    fields.finish();
    dir
}
