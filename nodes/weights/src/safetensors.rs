//! Reader of safetensors files, whole or in shards, and their writer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, View};

use crate::error::{Flaw, Format, WeightsError, malformed};
use crate::gguf::Tensors;
use crate::mapped::{Backing, TensorBytes};
use crate::tensor::{DType, RawTensor};

/// Reads all tensors of one file.
pub(crate) fn read(file: &Arc<Backing>) -> Result<Tensors, Flaw> {
    let (header, meta) =
        ::safetensors::SafeTensors::read_metadata(file).map_err(|error| Flaw::Malformed(error.to_string()))?;
    let data = header + 8;
    let mut tensors = Tensors::new();
    for (name, info) in meta.tensors() {
        let dtype = dtype(info.dtype, &name)?;
        let (start, end) = info.data_offsets;
        let range = data.checked_add(start).zip(data.checked_add(end));
        let Some(bytes) = range.and_then(|(start, end)| TensorBytes::view(file, start..end)) else {
            return malformed(format!("tensor {name:?} reaches beyond the end of the file"));
        };
        let tensor = RawTensor::checked(name.clone(), info.shape.clone(), dtype, bytes)?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Reads the shards that a `model.safetensors.index.json` names, all from the index's own folder.
pub(crate) fn read_sharded(path: &Path) -> Result<Tensors, WeightsError> {
    let index = std::fs::read(path).map_err(WeightsError::io(path))?;
    let map = shard_of(&index).map_err(|flaw| flaw.at(path, Format::Safetensors))?;
    let shards: BTreeSet<&String> = map.values().collect();
    let mut tensors = Tensors::new();
    for shard in shards {
        let file = path.with_file_name(shard);
        let found = read(&Backing::map(&file)?).map_err(|flaw| flaw.at(&file, Format::Safetensors))?;
        tensors.extend(found.into_iter().filter(|(name, _)| map.get(name) == Some(shard)));
    }
    match map.keys().find(|name| !tensors.contains_key(*name)) {
        None => Ok(tensors),
        Some(name) => Err(WeightsError::Missing { path: path.to_path_buf(), name: name.clone() }),
    }
}

/// The map of an index: tensor name to the file name of its shard.
fn shard_of(index: &[u8]) -> Result<BTreeMap<String, String>, Flaw> {
    let index: serde_json::Value = serde_json::from_slice(index).map_err(|error| Flaw::Malformed(error.to_string()))?;
    let Some(map) = index.get("weight_map").and_then(|map| map.as_object()) else {
        return malformed("the index has no weight_map");
    };
    let mut shards = BTreeMap::new();
    for (name, shard) in map {
        let plain = shard.as_str().filter(|s| !s.contains(['/', '\\', ':']) && !s.starts_with('.'));
        let Some(shard) = plain.filter(|s| !s.is_empty()) else {
            return malformed(format!("{shard} is not a file name in the index's folder"));
        };
        shards.insert(name.clone(), shard.to_string());
    }
    Ok(shards)
}

fn dtype(dtype: Dtype, name: &str) -> Result<DType, Flaw> {
    Ok(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 | Dtype::BOOL => DType::U8,
        other => return Err(Flaw::Unsupported(format!("tensor {name:?} of type {other:?}"))),
    })
}

// --- writing ---

impl View for &RawTensor {
    fn dtype(&self) -> Dtype {
        match self.dtype {
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::I8 => Dtype::I8,
            DType::I16 => Dtype::I16,
            DType::I32 => Dtype::I32,
            DType::I64 => Dtype::I64,
            DType::U8 | DType::GgmlQ(_) => Dtype::U8,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes tensors to a new safetensors file; quantised blocks are refused.
pub fn write_safetensors<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = &'a RawTensor>,
) -> Result<(), WeightsError> {
    let tensors: Vec<&RawTensor> = tensors.into_iter().collect();
    for tensor in &tensors {
        let refused = match tensor.dtype {
            DType::GgmlQ(q) => Flaw::Unsupported(format!("writing {:?} as {q:?}", tensor.name)),
            dtype if dtype.bytes_for(&tensor.shape) == Some(tensor.bytes.len()) => continue,
            _ => Flaw::Malformed(format!("tensor {:?} has {} bytes", tensor.name, tensor.bytes.len())),
        };
        return Err(refused.at(path, Format::Safetensors));
    }
    // The writer puts a private file in place; give it the permissions that the user's umask asks for.
    let permissions = std::fs::File::create(path).and_then(|file| file.metadata()).map(|meta| meta.permissions());
    let permissions = permissions.map_err(WeightsError::io(path))?;
    let named = tensors.iter().map(|t| (t.name.clone(), *t));
    ::safetensors::serialize_to_file(named, None, path)
        .map_err(std::io::Error::other)
        .and_then(|()| std::fs::set_permissions(path, permissions))
        .map_err(WeightsError::io(path))
}
