//! Walks the source tree and its manifests, for the tidy test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item};

/// A workspace crate as its manifest tells.
#[derive(Debug)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its folder, from the root.
    pub folder: String,
    /// The workspace crates that it depends on, dev-dependencies apart.
    pub uses: Vec<String>,
    /// All crates that it depends on, dev-dependencies apart.
    pub dependencies: Vec<String>,
}

/// Returns the workspace's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("invariant: the tests stand in the workspace")
}

/// Returns all Rust files of the workspace, as paths from the root.
pub fn rust_files() -> Vec<PathBuf> {
    let root = root();
    let mut files = Vec::new();
    for name in folders(&root) {
        collect(&root, Path::new(&name), &mut files);
    }
    files.sort();
    files
}

fn folders(root: &Path) -> Vec<String> {
    let skip = ["target", ".git", ".ci", "docs", "deployments"];
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let names = entries.filter(|e| e.path().is_dir()).filter_map(|e| e.file_name().into_string().ok());
    names.filter(|name| !skip.contains(&name.as_str())).collect()
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
        let path = folder.join(entry.file_name());
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            if entry.file_name() != "target" {
                collect(root, &path, files);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Reads a file of the workspace; empty when it is not there.
pub fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

/// Returns the workspace's crates by name.
pub fn crates() -> BTreeMap<String, Crate> {
    let manifest = parse(Path::new("Cargo.toml"));
    let members = manifest["workspace"]["members"].as_array().into_iter().flatten();
    let folders: Vec<String> = members.filter_map(|m| m.as_str()).map(str::to_owned).collect();
    folders
        .into_iter()
        .map(|folder| {
            let manifest = parse(&Path::new(&folder).join("Cargo.toml"));
            let name = manifest["package"]["name"].as_str().unwrap_or_default().to_owned();
            let dependencies = keys(manifest.get("dependencies"));
            let uses = dependencies.iter().filter(|name| name.starts_with("mstar-")).cloned().collect();
            (name.clone(), Crate { name, folder, uses, dependencies })
        })
        .collect()
}

fn parse(path: &Path) -> DocumentMut {
    read(path).parse().unwrap_or_default()
}

fn keys(table: Option<&Item>) -> Vec<String> {
    table.and_then(Item::as_table_like).map_or_else(Vec::new, |t| t.iter().map(|(key, _)| key.to_owned()).collect())
}
