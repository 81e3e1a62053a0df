//! Spoken output, and the file that it goes into.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use mstar_media::{AudioFormat, encode};

use crate::client::Line;

/// Collects spoken output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    samples: Vec<i16>,
    sample_rate: u32,
}

/// A file that is open before there is anything to write, so that one that cannot be written is noticed before anybody
/// has worked for it. Dropped unwritten, it leaves everything as it was.
#[derive(Debug)]
pub(crate) struct WavFile {
    path: PathBuf,
    file: File,
    /// Whether it is to be removed again.
    unwritten: bool,
}

// --- impl Recording ---

impl Recording {
    /// Adds a line of modality `audio`.
    pub(crate) fn push(&mut self, line: &Line) {
        self.sample_rate = line.metadata["sample_rate"].as_u64().and_then(|r| u32::try_from(r).ok()).unwrap_or(24_000);
        self.samples.extend(line.bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])));
    }

    /// Returns its length in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        if self.sample_rate == 0 { 0.0 } else { self.samples.len() as f64 / f64::from(self.sample_rate) }
    }
}

// --- impl WavFile ---

impl WavFile {
    /// Opens a file, which keeps what is in it until something is written.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let named = || format!("cannot write {}", path.display());
        let existed = path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path).with_context(named)?;
        Ok(Self { path: path.to_path_buf(), file, unwritten: !existed })
    }

    /// Writes a recording; one without a sample is none.
    pub(crate) fn write(mut self, recording: &Recording) -> Result<()> {
        if recording.samples.is_empty() {
            bail!("no audio came, so {} was not written", self.path.display());
        }
        let samples: Vec<f32> = recording.samples.iter().map(|&s| f32::from(s) / 32_767.0).collect();
        let bytes = encode(AudioFormat::Wav, &samples, recording.sample_rate)?;
        let written = self.shorten().and_then(|()| self.file.write_all(&bytes));
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.unwritten = false;
        Ok(())
    }

    /// Takes away what was in the file. What is no file, such as a pipe, holds nothing.
    fn shorten(&self) -> std::io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }
}

impl Drop for WavFile {
    fn drop(&mut self) {
        if self.unwritten {
            // It was made by us and is empty; if it cannot be removed, that is no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn spoken() -> Recording {
        let mut recording = Recording::default();
        let metadata = serde_json::json!({"sample_rate": 16_000});
        let (modality, bytes, after) = ("audio".to_owned(), vec![1, 0, 2, 0], Duration::ZERO);
        recording.push(&Line { modality, bytes, metadata, after });
        recording
    }

    #[test]
    fn a_file_is_left_as_it_was_until_there_is_something_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old.wav"), folder.path().join("new.wav"));
        std::fs::write(&old, [7; 200]).unwrap();
        for path in [&old, &new] {
            drop(WavFile::open(path).unwrap());
            let error = WavFile::open(path).unwrap().write(&Recording::default()).unwrap_err();
            assert!(error.to_string().starts_with("no audio came"), "{error}");
        }
        assert_eq!((std::fs::read(&old).unwrap(), new.exists()), (vec![7; 200], false));
        for path in [&old, &new] {
            WavFile::open(path).unwrap().write(&spoken()).unwrap();
            assert_eq!(std::fs::read(path).unwrap().len(), 44 + 4);
        }
        assert!(WavFile::open(&folder.path().join("nowhere/a.wav")).is_err());
    }
}
