//! What a deployment names on disk: folders of weights, the file of keys, the cache. The file itself is right by now.

use std::collections::BTreeSet;
use std::path::Path;

use mstar_config::{AccessError, Weights, locate};
use mstar_weights::{Cache, LocalFolder, package};

use crate::commands::{Setting, models};
use crate::deployment::Read;

/// Something on disk that is not as a deployment needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The key that names it, from the root.
    pub(super) path: Vec<String>,
    /// What is wrong.
    pub(super) what: String,
    /// Whether the deployment cannot boot like this.
    pub(super) prevents_boot: bool,
}

// --- impl Finding ---

impl Finding {
    fn new(path: &[&str], what: impl Into<String>, prevents_boot: bool) -> Self {
        Self { path: path.iter().map(|key| (*key).to_owned()).collect(), what: what.into(), prevents_boot }
    }

    /// Returns the line that tells it, with the place in the file if the file has the key.
    pub(super) fn line(&self, read: &Read) -> String {
        let place = self.place(read).map_or_else(String::new, |(line, column)| format!("{line}:{column}:"));
        let kind = if self.prevents_boot { "" } else { "warning: " };
        format!("{}:{place} {kind}{}: {}", read.name, self.path.join("."), self.what)
    }

    fn place(&self, read: &Read) -> Option<(usize, usize)> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        locate(&read.text, &path)
    }
}

/// Looks at everything on disk that a deployment needs, in the order of its file.
pub(super) fn findings(read: &Read, setting: &Setting) -> Vec<Finding> {
    let mut found = own_weights(read, setting);
    found.extend(keys(read, setting));
    found.extend(cached_weights(read, setting));
    found.sort_by_key(|finding| finding.place(read));
    found
}

/// Looks at the folders that the user names in the place of packages.
fn own_weights(read: &Read, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    for (id, settings) in &read.deployment.models {
        let Weights::Folder(folder) = &settings.weights else { continue };
        let folder = read.folder.join(folder);
        for package in packages(setting, id).into_iter().filter_map(package) {
            if let Err(error) = LocalFolder::open(&folder, package) {
                found.push(Finding::new(&["model", id, "weights"], told(&error), true));
            }
        }
    }
    found
}

fn keys(read: &Read, setting: &Setting) -> Option<Finding> {
    let error = read.deployment.all_keys(&read.folder, &setting.environment).err()?;
    Some(match error {
        // Whoever checks a file need not have the secrets of whoever serves it.
        AccessError::NoEnvironment => Finding::new(&["api_keys_env"], told(&error), false),
        _ => Finding::new(&["api_keys_file"], told(&error), true),
    })
}

/// Looks at the cache, and at the packages that are to be in it.
fn cached_weights(read: &Read, setting: &Setting) -> Vec<Finding> {
    let own = |id: &str| read.deployment.models.get(id).is_some_and(|m| matches!(m.weights, Weights::Folder(_)));
    let homes = setting.zoo.entries().iter().map(|entry| entry.model.id());
    let replaced: BTreeSet<&str> =
        homes.filter(|id| own(id.as_str())).flat_map(|id| packages(setting, id.as_str())).collect();
    let served: BTreeSet<&str> = read.deployment.served().flat_map(|id| packages(setting, id)).collect();
    let needed = served.difference(&replaced).filter_map(|name| package(name));
    let at = |what: String, prevents_boot| Finding::new(&["cache", "dir"], what, prevents_boot);
    let Some(dir) = read.deployment.cache_dir(&setting.environment) else {
        let what = "no folder for weights: set it, or MSTAR_CACHE or HOME".to_owned();
        return if needed.count() > 0 { vec![at(what, true)] } else { Vec::new() };
    };
    let cache = Cache::at(dir.clone());
    let missing: Vec<_> = needed.filter(|package| cache.ready(package).is_none()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    if let Some(what) = unusable(&dir) {
        return vec![at(what, true)];
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let bytes: u64 = missing.iter().flat_map(|package| package.wheels.iter().map(|wheel| wheel.bytes)).sum();
    let (names, megabytes) = (names.join(", "), bytes.div_ceil(1_000_000));
    vec![at(format!("{} does not have {names} yet; the boot fetches {megabytes} MB", dir.display()), false)]
}

/// Says why a folder cannot be used, or not be made.
fn unusable(dir: &Path) -> Option<String> {
    let mut there = Some(dir);
    while let Some(at) = there {
        match std::fs::metadata(at) {
            Ok(meta) if !meta.is_dir() => return Some(format!("{} is not a folder", at.display())),
            Ok(meta) if meta.permissions().readonly() => return Some(format!("{} is read-only", at.display())),
            Ok(_) => return None,
            Err(_) => there = at.parent().filter(|parent| !parent.as_os_str().is_empty()),
        }
    }
    None
}

/// Returns the packages of a model's own components.
fn packages(setting: &Setting, id: &str) -> BTreeSet<&'static str> {
    let entry = setting.zoo.entries().iter().find(|entry| entry.model.id() == id);
    entry.map(|entry| models::packages(&setting.zoo, entry)).unwrap_or_default()
}

/// Returns an error with all its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
