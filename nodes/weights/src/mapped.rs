//! The bytes of a weight file: mapped from disk, or owned.

use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::WeightsError;

/// A file's bytes, shared by all its tensors.
#[derive(Debug)]
pub(crate) enum Backing {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

/// A tensor's bytes: a range of a shared file, cheap to clone.
#[derive(Debug, Clone)]
pub struct TensorBytes {
    backing: Arc<Backing>,
    range: Range<usize>,
}

// --- impl Backing ---

impl Backing {
    /// Maps a file read-only.
    #[expect(unsafe_code, reason = "a memory map is only as immutable as its file")]
    pub(crate) fn map(path: &Path) -> Result<Arc<Self>, WeightsError> {
        let file = File::open(path).map_err(WeightsError::io(path))?;
        let len = file.metadata().map_err(WeightsError::io(path))?.len();
        if len == 0 {
            return Ok(Arc::new(Self::Owned(Vec::new())));
        }
        // SAFETY: the map is read-only and private to this crate. Files in the cache are renamed into
        // place and never written again; a user's own model folder must likewise not be rewritten in
        // place while it is served (as for every program that maps weights).
        let map = unsafe { Mmap::map(&file) }.map_err(WeightsError::io(path))?;
        Ok(Arc::new(Self::Mapped(map)))
    }
}

impl Deref for Backing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

// --- impl TensorBytes ---

impl TensorBytes {
    /// A view of `range`, or nothing when the file is shorter.
    pub(crate) fn view(backing: &Arc<Backing>, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= backing.len()).then(|| Self { backing: Arc::clone(backing), range })
    }

    /// A part of this view, by offsets from its start.
    pub(crate) fn slice(&self, part: Range<usize>) -> Option<Self> {
        let end = self.range.start.checked_add(part.end)?;
        let start = self.range.start.checked_add(part.start)?;
        (end <= self.range.end).then(|| Self::view(&self.backing, start..end))?
    }
}

impl From<Vec<u8>> for TensorBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { backing: Arc::new(Backing::Owned(bytes)), range }
    }
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.backing[self.range.clone()]
    }
}
