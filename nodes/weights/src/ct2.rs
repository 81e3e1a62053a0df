//! Reader of CTranslate2's `model.bin`, and the names Hugging Face gives to a Whisper in it.

pub(crate) mod whisper;

use std::sync::Arc;

use crate::error::{Flaw, malformed};
use crate::gguf::Tensors;
use crate::mapped::{Backing, TensorBytes};
use crate::scan::Scan;
use crate::tensor::{DType, RawTensor};

/// What a `model.bin` declares about itself.
pub(crate) struct Model {
    /// The kind of model, e.g. `WhisperSpec`.
    pub(crate) spec: String,
    /// Its tensors under CTranslate2's names; aliases share bytes.
    pub(crate) tensors: Tensors,
}

/// Reads a whole file of binary version 4 to 6.
pub(crate) fn read(file: &Arc<Backing>) -> Result<Model, Flaw> {
    let mut scan = Scan::new(file);
    let version = scan.u32()?;
    if !(4..=6).contains(&version) {
        return Err(Flaw::Unsupported(format!("CTranslate2 binary version {version}")));
    }
    let spec = string(&mut scan)?;
    let _revision = scan.u32()?;
    let mut tensors = Tensors::new();
    for _ in 0..scan.u32()? {
        let tensor = variable(file, &mut scan)?;
        tensors.insert(tensor.name.clone(), tensor);
    }
    for _ in 0..scan.u32()? {
        let (alias, target) = (string(&mut scan)?, string(&mut scan)?);
        let Some(tensor) = tensors.get(&target) else {
            return malformed(format!("{alias:?} is an alias of the unknown {target:?}"));
        };
        let tensor = RawTensor { name: alias.clone(), ..tensor.clone() };
        tensors.insert(alias, tensor);
    }
    Ok(Model { spec, tensors })
}

fn variable(file: &Arc<Backing>, scan: &mut Scan<'_>) -> Result<RawTensor, Flaw> {
    let name = string(scan)?;
    let rank = scan.u8()?;
    if rank > 8 {
        return malformed(format!("variable {name:?} has {rank} dimensions"));
    }
    let shape = (0..rank).map(|_| Ok(scan.u32()? as usize)).collect::<Result<Vec<_>, Flaw>>()?;
    let dtype = match scan.u8()? {
        0 => DType::F32,
        1 => DType::I8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::F16,
        5 => DType::BF16,
        code => return Err(Flaw::Unsupported(format!("variable {name:?} of type {code}"))),
    };
    let len = scan.u32()? as usize;
    let start = scan.position();
    scan.take(len)?;
    match TensorBytes::view(file, start..start + len) {
        Some(bytes) => RawTensor::checked(name, shape, dtype, bytes),
        None => malformed(format!("variable {name:?} reaches beyond the end of the file")),
    }
}

/// A length, then that many bytes of which the last may be a zero.
fn string(scan: &mut Scan<'_>) -> Result<String, Flaw> {
    let len = usize::from(scan.u16()?);
    let bytes = scan.take(len)?;
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_string()),
        Err(_) => malformed(format!("a name at offset {} is not UTF-8", scan.position())),
    }
}
