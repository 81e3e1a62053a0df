//! An opened weight file: tensors by name, whatever the format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Flaw, Format, WeightsError};
use crate::gguf::{Meta, MetaValue, Tensors};
use crate::mapped::Backing;
use crate::tensor::RawTensor;
use crate::{ct2, gguf, onnx, safetensors};

/// An opened weight file (or set of shards): tensors by name, memory-mapped.
#[derive(Debug, Clone)]
pub struct WeightFile {
    path: PathBuf,
    format: Format,
    tensors: BTreeMap<String, RawTensor>,
    meta: Meta,
}

// --- impl WeightFile ---

impl WeightFile {
    /// Opens a file, recognised by its content and name, or the weights in a model folder.
    ///
    /// A folder is searched for `model.safetensors`, `model.safetensors.index.json`, and a single
    /// `.gguf` file, in this order. A CTranslate2 Whisper appears under Hugging Face's names.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        if path.is_dir() {
            return Self::open(&in_folder(path)?);
        }
        if path.to_string_lossy().ends_with(".index.json") {
            let tensors = safetensors::read_sharded(path)?;
            return Ok(Self::new(path, Format::Safetensors, tensors));
        }
        let file = Backing::map(path)?;
        let format = recognise(path, &file);
        Self::read(path, format, &file)
    }

    /// Reads a file held in memory.
    pub fn from_bytes(format: Format, bytes: Vec<u8>) -> Result<Self, WeightsError> {
        Self::read(Path::new("<memory>"), format, &Arc::new(Backing::Owned(bytes)))
    }

    fn read(path: &Path, format: Format, file: &Arc<Backing>) -> Result<Self, WeightsError> {
        let read = || -> Result<(Meta, Tensors), Flaw> {
            match format {
                Format::Gguf => gguf::read(file),
                Format::Safetensors => Ok((Meta::new(), safetensors::read(file)?)),
                Format::Onnx => Ok((Meta::new(), onnx::read(file)?)),
                Format::Ct2 => {
                    let model = ct2::read(file)?;
                    Ok((Meta::new(), ct2::whisper::to_hugging_face(&model)?))
                }
            }
        };
        let (meta, tensors) = read().map_err(|flaw| flaw.at(path, format))?;
        Ok(Self { meta, ..Self::new(path, format, tensors) })
    }

    fn new(path: &Path, format: Format, tensors: Tensors) -> Self {
        Self { path: path.to_path_buf(), format, tensors, meta: Meta::new() }
    }

    /// The file (for shards: the index).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format it was read as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The tensor of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&RawTensor> {
        self.tensors.get(name)
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Result<&RawTensor, WeightsError> {
        self.get(name).ok_or_else(|| WeightsError::Missing { path: self.path.clone(), name: name.to_string() })
    }

    /// A tensor's elements as `f32`, and its shape.
    pub fn to_f32(&self, name: &str) -> Result<(Vec<f32>, Vec<usize>), WeightsError> {
        let tensor = self.tensor(name)?;
        Ok((tensor.to_f32(), tensor.shape.clone()))
    }

    /// A tensor's elements as `f32`, when it has exactly this shape.
    pub fn f32_of(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        Ok(self.tensor_of(name, shape)?.to_f32())
    }

    /// The tensor of this name, when it has exactly this shape.
    pub fn tensor_of(&self, name: &str, shape: &[usize]) -> Result<&RawTensor, WeightsError> {
        let tensor = self.tensor(name)?;
        if tensor.shape != shape {
            return Err(WeightsError::Shape {
                name: name.to_string(),
                found: tensor.shape.clone(),
                expected: shape.to_vec(),
            });
        }
        Ok(tensor)
    }

    /// All tensors, in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = &RawTensor> {
        self.tensors.values()
    }

    /// The setting of this key; only GGUF files have any.
    pub fn meta(&self, key: &str) -> Option<&MetaValue> {
        self.meta.get(key)
    }

    /// All settings; empty but for GGUF files.
    pub fn metas(&self) -> &Meta {
        &self.meta
    }
}

/// The weights of a model folder.
fn in_folder(folder: &Path) -> Result<PathBuf, WeightsError> {
    for name in ["model.safetensors", "model.safetensors.index.json"] {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let mut ggufs = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(WeightsError::io(folder))? {
        let path = entry.map_err(WeightsError::io(folder))?.path();
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
            ggufs.push(path);
        }
    }
    match (ggufs.pop(), ggufs.is_empty()) {
        (Some(path), true) => Ok(path),
        (Some(_), false) => Err(WeightsError::Unsupported {
            path: folder.to_path_buf(),
            what: "a folder with several GGUF files".into(),
        }),
        (None, _) => Err(WeightsError::Missing {
            path: folder.to_path_buf(),
            name: "model.safetensors, its index, or a .gguf file".into(),
        }),
    }
}

fn recognise(path: &Path, bytes: &[u8]) -> Format {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        _ if bytes.starts_with(gguf::MAGIC) => Format::Gguf,
        Some("gguf") => Format::Gguf,
        Some("onnx") => Format::Onnx,
        Some("bin") => Format::Ct2,
        _ => Format::Safetensors,
    }
}
