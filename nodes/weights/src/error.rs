//! What can go wrong with a weight file.

use std::fmt;
use std::path::PathBuf;

/// A file format this crate reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Hugging Face's safetensors, whole or in shards.
    Safetensors,
    /// llama.cpp's GGUF, versions 2 and 3.
    Gguf,
    /// CTranslate2's `model.bin`.
    Ct2,
    /// The initialisers of an ONNX graph.
    Onnx,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safetensors => "safetensors",
            Self::Gguf => "GGUF",
            Self::Ct2 => "CTranslate2",
            Self::Onnx => "ONNX",
        })
    }
}

/// Why a weight file could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file system refused.
    #[error("cannot access {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file breaks its format's rules, or was cut short.
    #[error("{path} is not a valid {format} file: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: Format,
        /// The rule it breaks.
        reason: String,
    },
    /// The file is in order but holds something this crate does not read.
    #[error("{path}: {what} is not supported", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it holds.
        what: String,
    },
    /// The file has no tensor of this name.
    #[error("{path} has no tensor {name:?}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("tensor {name:?} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape in the file.
        found: Vec<usize>,
        /// The shape asked for.
        expected: Vec<usize>,
    },
}

impl WeightsError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }
}

/// A parser's finding, before the file's path is known to it.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// The bytes break the format's rules.
    Malformed(String),
    /// The bytes are in order, but we do not read this.
    Unsupported(String),
}

impl Flaw {
    pub(crate) fn at(self, path: &std::path::Path, format: Format) -> WeightsError {
        let path = path.to_path_buf();
        match self {
            Self::Malformed(reason) => WeightsError::Malformed { path, format, reason },
            Self::Unsupported(what) => WeightsError::Unsupported { path, what },
        }
    }
}

/// Shorthand for a malformed file.
pub(crate) fn malformed<T>(reason: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::Malformed(reason.into()))
}
