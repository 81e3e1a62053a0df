//! Reader of GGUF versions 2 and 3: settings and tensors.
//!
//! A GGUF made from a Llama checkpoint stores the rows of `attn_q` and `attn_k` in the order of
//! interleaved rotary pairs (0, 1), (2, 3), …, not in Hugging Face's half-and-half order.

pub(crate) mod dequant;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Flaw, malformed};
use crate::mapped::{Backing, TensorBytes};
use crate::scan::{Scan, elements, index};
use crate::tensor::{DType, GgmlQ, RawTensor};

/// A setting stored in a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaValue {
    /// A truth value.
    Bool(bool),
    /// Any integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text.
    Str(String),
    /// Truth values.
    Bools(Vec<bool>),
    /// Integers; 64-bit values above `i64::MAX` are refused.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Texts.
    Strs(Vec<String>),
}

/// The settings of a GGUF file by key; empty for other formats.
pub type Meta = BTreeMap<String, MetaValue>;

pub(crate) type Tensors = BTreeMap<String, RawTensor>;

pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// The least a key with its value, or a tensor's entry, can take.
const MIN_ENTRY: usize = 8 + 4 + 1;

// --- impl MetaValue ---

impl MetaValue {
    /// The text, when it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The number as an index, when it is a whole one.
    pub fn as_usize(&self) -> Option<usize> {
        match self {
            Self::Int(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The number as a float.
    pub fn as_f32(&self) -> Option<f32> {
        match self {
            Self::Float(value) => Some(*value as f32),
            Self::Int(value) => Some(*value as f32),
            _ => None,
        }
    }

    /// The truth value, when it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The texts, when it is a list of them.
    pub fn as_strs(&self) -> Option<&[String]> {
        match self {
            Self::Strs(texts) => Some(texts),
            _ => None,
        }
    }

    /// The integers, when it is a list of them.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match self {
            Self::Ints(values) => Some(values),
            _ => None,
        }
    }
}

// --- reading ---

/// Where a tensor lies, before the start of the data is known.
struct Entry {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
    offset: usize,
}

/// Reads the settings and the tensors of a whole file.
pub(crate) fn read(file: &Arc<Backing>) -> Result<(Meta, Tensors), Flaw> {
    let mut scan = Scan::new(file);
    if scan.take(4)? != MAGIC {
        return malformed("it does not start with GGUF");
    }
    let version = scan.u32()?;
    if !(2..=3).contains(&version) {
        return Err(Flaw::Unsupported(format!("GGUF version {version}")));
    }
    let (tensor_count, meta_count) = (scan.u64()?, scan.u64()?);
    let meta_count = scan.plausible(meta_count, MIN_ENTRY)?;
    let mut meta = Meta::new();
    for _ in 0..meta_count {
        let key = string(&mut scan)?;
        let kind = scan.u32()?;
        let value = value(&mut scan, kind)?;
        meta.insert(key, value);
    }
    let tensor_count = scan.plausible(tensor_count, MIN_ENTRY)?;
    let entries = (0..tensor_count).map(|_| entry(&mut scan)).collect::<Result<Vec<_>, _>>()?;
    let data = data_start(scan.position(), &meta)?;
    let mut tensors = Tensors::new();
    for entry in entries {
        let tensor = locate(file, data, entry)?;
        if let Some(twice) = tensors.insert(tensor.name.clone(), tensor) {
            return malformed(format!("tensor {:?} appears twice", twice.name));
        }
    }
    Ok((meta, tensors))
}

fn data_start(header_end: usize, meta: &Meta) -> Result<usize, Flaw> {
    let align = match meta.get("general.alignment") {
        None => 32,
        Some(value) => value.as_usize().unwrap_or(0),
    };
    if !align.is_power_of_two() || align > 1 << 20 {
        return malformed(format!("alignment {align} is not a power of two up to 1 MiB"));
    }
    Ok(header_end.next_multiple_of(align))
}

fn entry(scan: &mut Scan<'_>) -> Result<Entry, Flaw> {
    let name = string(scan)?;
    let rank = scan.u32()?;
    if rank > 8 {
        return malformed(format!("tensor {name:?} has {rank} dimensions"));
    }
    let mut shape = (0..rank).map(|_| index(scan.u64()?)).collect::<Result<Vec<usize>, Flaw>>()?;
    // The file lists the fastest dimension first.
    shape.reverse();
    let dtype = dtype(scan.u32()?, &name)?;
    let offset = index(scan.u64()?)?;
    Ok(Entry { name, shape, dtype, offset })
}

fn locate(file: &Arc<Backing>, data: usize, entry: Entry) -> Result<RawTensor, Flaw> {
    let Entry { name, shape, dtype, offset } = entry;
    elements(&shape)?;
    let Some(len) = dtype.bytes_for(&shape) else {
        return malformed(format!("tensor {name:?} cannot have shape {shape:?} as {dtype:?}"));
    };
    let start = data.checked_add(offset);
    let view =
        start.and_then(|start| Some(start..start.checked_add(len)?)).and_then(|range| TensorBytes::view(file, range));
    match view {
        Some(bytes) => RawTensor::checked(name, shape, dtype, bytes),
        None => malformed(format!("tensor {name:?} reaches beyond the end of the file")),
    }
}

fn dtype(code: u32, name: &str) -> Result<DType, Flaw> {
    Ok(match code {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::GgmlQ(GgmlQ::Q4_0),
        3 => DType::GgmlQ(GgmlQ::Q4_1),
        6 => DType::GgmlQ(GgmlQ::Q5_0),
        7 => DType::GgmlQ(GgmlQ::Q5_1),
        8 => DType::GgmlQ(GgmlQ::Q8_0),
        12 => DType::GgmlQ(GgmlQ::Q4K),
        14 => DType::GgmlQ(GgmlQ::Q6K),
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        30 => DType::BF16,
        _ => return Err(Flaw::Unsupported(format!("tensor {name:?} of GGML type {code}"))),
    })
}

fn string(scan: &mut Scan<'_>) -> Result<String, Flaw> {
    let len = index(scan.u64()?)?;
    let bytes = scan.take(len)?;
    // Tokens of byte-level vocabularies are valid UTF-8; be lenient about the rest.
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn value(scan: &mut Scan<'_>, kind: u32) -> Result<MetaValue, Flaw> {
    Ok(match kind {
        6 => MetaValue::Float(f64::from(f32::from_bits(scan.u32()?))),
        7 => MetaValue::Bool(scan.u8()? != 0),
        8 => MetaValue::Str(string(scan)?),
        9 => array(scan)?,
        12 => MetaValue::Float(f64::from_bits(scan.u64()?)),
        10 => MetaValue::Int(i128::from(scan.u64()?)),
        _ => MetaValue::Int(i128::from(integer(scan, kind)?)),
    })
}

fn integer(scan: &mut Scan<'_>, kind: u32) -> Result<i64, Flaw> {
    Ok(match kind {
        0 => i64::from(scan.u8()?),
        1 => i64::from(scan.u8()? as i8),
        2 => i64::from(scan.u16()?),
        3 => i64::from(scan.u16()? as i16),
        4 => i64::from(scan.u32()?),
        5 => i64::from(scan.u32()? as i32),
        10 => {
            let value = scan.u64()?;
            i64::try_from(value).map_err(|_| Flaw::Unsupported(format!("a list with the number {value}")))?
        }
        11 => scan.u64()? as i64,
        _ => return malformed(format!("a setting has the unknown type {kind}")),
    })
}

fn array(scan: &mut Scan<'_>) -> Result<MetaValue, Flaw> {
    let kind = scan.u32()?;
    let count = scan.u64()?;
    let size = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => return Err(Flaw::Unsupported("a setting that is a list of lists".into())),
        _ => return malformed(format!("a list has the unknown type {kind}")),
    };
    let count = scan.plausible(count, size)?;
    Ok(match kind {
        6 => MetaValue::Floats(collect(count, || Ok(f32::from_bits(scan.u32()?)))?),
        12 => MetaValue::Floats(collect(count, || Ok(f64::from_bits(scan.u64()?) as f32))?),
        7 => MetaValue::Bools(collect(count, || Ok(scan.u8()? != 0))?),
        8 => MetaValue::Strs(collect(count, || string(scan))?),
        _ => MetaValue::Ints(collect(count, || integer(scan, kind))?),
    })
}

fn collect<T>(count: usize, mut next: impl FnMut() -> Result<T, Flaw>) -> Result<Vec<T>, Flaw> {
    (0..count).map(|_| next()).collect()
}
