//! The folder that keeps wheels and ready models, shared by all processes of a user.
//!
//! ```text
//! <root>/wheels/   verified files, never fetched again
//! <root>/models/   ready folders, renamed into place whole and never written again
//! <root>/tmp/      work in progress, one folder per package
//! <root>/locks/    one file per package, locked by whoever prepares it
//! ```

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::pull::{Event, Progress, PullError};

/// A cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    python: Option<PathBuf>,
}

// --- impl Cache ---

impl Cache {
    /// A cache in this folder, which is created when something is first pulled.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), python: None }
    }

    /// Uses this Python's pip instead of the first one on the path.
    pub fn with_python(self, python: impl Into<PathBuf>) -> Self {
        Self { python: Some(python.into()), ..self }
    }

    /// The cache that tests and examples of this workspace share, in its `target` folder.
    pub fn in_target_dir() -> Self {
        Self::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/mstar-cache"))
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a fetched file is kept. A file put here by hand is accepted when its checksum is right.
    pub fn wheel(&self, file: &str) -> PathBuf {
        self.root.join("wheels").join(file)
    }

    /// The Python chosen by the user, if any.
    pub(crate) fn python(&self) -> Option<&Path> {
        self.python.as_deref()
    }

    pub(crate) fn model(&self, folder: &str) -> PathBuf {
        self.root.join("models").join(folder)
    }

    pub(crate) fn work(&self, package: &str) -> PathBuf {
        self.root.join("tmp").join(package)
    }

    /// Creates the folders, then waits until no other process prepares this package.
    pub(crate) fn lock(&self, package: &str, progress: &mut dyn Progress) -> Result<File, PullError> {
        for folder in ["wheels", "models", "tmp", "locks"] {
            let folder = self.root.join(folder);
            fs::create_dir_all(&folder).map_err(PullError::io(&folder))?;
        }
        let path = self.root.join("locks").join(format!("{package}.lock"));
        let options = File::options().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(PullError::io(&path))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => progress.report(Event::Waiting),
            Err(TryLockError::Error(source)) => return Err(PullError::io(&path)(source)),
        }
        file.lock().map_err(PullError::io(&path))?;
        Ok(file)
    }
}
