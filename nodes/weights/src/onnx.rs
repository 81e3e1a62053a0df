//! The initialisers of an ONNX graph, through a minimal reader of its protobuf encoding.
//!
//! Only what weights need: `ModelProto.graph` (7) → `GraphProto.initializer` (5) → `TensorProto`.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Flaw, malformed};
use crate::gguf::Tensors;
use crate::mapped::{Backing, TensorBytes};
use crate::scan::{Scan, elements, index};
use crate::tensor::{DType, RawTensor};

/// A field of a protobuf message.
enum Field {
    Varint(u64),
    /// Offsets into the whole file.
    Bytes(Range<usize>),
    Fixed32(u32),
    Fixed64,
}

/// Reads all initialisers of a file under their own names.
pub(crate) fn read(file: &Arc<Backing>) -> Result<Tensors, Flaw> {
    let mut tensors = Tensors::new();
    let mut graphs = 0;
    fields(file, 0..file.len(), |number, field| {
        let (7, Field::Bytes(graph)) = (number, field) else { return Ok(()) };
        graphs += 1;
        fields(file, graph, |number, field| {
            let (5, Field::Bytes(tensor)) = (number, field) else { return Ok(()) };
            let tensor = Initialiser::read(file, tensor)?.tensor(file)?;
            tensors.insert(tensor.name.clone(), tensor);
            Ok(())
        })
    })?;
    if graphs == 0 {
        return malformed("it holds no graph");
    }
    Ok(tensors)
}

/// The base names `x` of all `x_quantized` initialisers.
pub(crate) fn quantised(tensors: &Tensors) -> Vec<String> {
    tensors.keys().filter_map(|name| name.strip_suffix("_quantized")).map(String::from).collect()
}

/// Dequantises `base_quantized` with its `_scale` and `_zero_point`, and turns the matrix `[in, out]`
/// that ONNX multiplies from the right into the `[out, in]` of a linear layer.
pub(crate) fn dequantised_linear(tensors: &Tensors, base: &str, name: &str) -> Result<RawTensor, Flaw> {
    let part = |suffix: &str| {
        let name = format!("{base}_{suffix}");
        tensors.get(&name).ok_or_else(|| Flaw::Malformed(format!("initialiser {name:?} is absent")))
    };
    let (quantised, scale, zero) = (part("quantized")?, part("scale")?, part("zero_point")?);
    let [_, columns] = quantised.shape[..] else {
        return malformed(format!("{:?} is not a matrix", quantised.name));
    };
    let (scale, zero) = (scale.to_f32(), zero.to_f32());
    let per_matrix = scale.len() == 1 && zero.len() == 1;
    if !per_matrix && (scale.len() != columns || zero.len() != columns) {
        return malformed(format!("{base:?} has {} scales for {columns} columns", scale.len()));
    }
    let mut values = quantised.to_f32();
    for (i, value) in values.iter_mut().enumerate() {
        let column = if per_matrix { 0 } else { i % columns };
        *value = (*value - zero[column]) * scale[column];
    }
    transposed(name, &quantised.shape, &values)
}

/// The transpose of a float matrix initialiser, under a new name.
pub(crate) fn transposed_linear(tensor: &RawTensor, name: &str) -> Result<RawTensor, Flaw> {
    transposed(name, &tensor.shape, &tensor.to_f32())
}

fn transposed(name: &str, shape: &[usize], values: &[f32]) -> Result<RawTensor, Flaw> {
    let [rows, columns] = shape[..] else {
        return malformed(format!("{name:?} is not a matrix"));
    };
    let mut out = Vec::with_capacity(values.len());
    for column in 0..columns {
        out.extend((0..rows).map(|row| values[row * columns + column]));
    }
    RawTensor::from_f32(name.to_string(), vec![columns, rows], &out)
}

// --- TensorProto ---

#[derive(Default)]
struct Initialiser {
    name: String,
    dims: Vec<usize>,
    data_type: u64,
    raw: Option<Range<usize>>,
    /// Values given one by one instead of raw, widened to eight bytes each.
    varints: Vec<u64>,
    /// Little-endian 32-bit floats given in the message itself.
    floats: Vec<u8>,
    external: bool,
}

impl Initialiser {
    fn read(file: &Arc<Backing>, message: Range<usize>) -> Result<Self, Flaw> {
        let mut out = Self::default();
        fields(file, message, |number, field| {
            match (number, field) {
                (1, Field::Varint(dim)) => out.dims.push(index(dim)?),
                (1, Field::Bytes(packed)) => varints(&file[packed], |v| {
                    out.dims.push(index(v)?);
                    Ok(())
                })?,
                (2, Field::Varint(code)) => out.data_type = code,
                (4, Field::Fixed32(bits)) => out.floats.extend(bits.to_le_bytes()),
                (4, Field::Bytes(packed)) => out.floats.extend_from_slice(&file[packed]),
                (5 | 7, Field::Varint(value)) => out.varints.push(value),
                (5 | 7, Field::Bytes(packed)) => varints(&file[packed], |v| {
                    out.varints.push(v);
                    Ok(())
                })?,
                (8, Field::Bytes(name)) => {
                    out.name = String::from_utf8_lossy(&file[name]).into_owned();
                }
                (9, Field::Bytes(raw)) => out.raw = Some(raw),
                (14, Field::Varint(place)) => out.external = place != 0,
                _ => {}
            }
            Ok(())
        })?;
        Ok(out)
    }

    fn tensor(self, file: &Arc<Backing>) -> Result<RawTensor, Flaw> {
        let dtype = match self.data_type {
            1 => DType::F32,
            2 | 9 => DType::U8,
            3 => DType::I8,
            5 => DType::I16,
            6 => DType::I32,
            7 => DType::I64,
            10 => DType::F16,
            16 => DType::BF16,
            code => {
                let what = format!("initialiser {:?} of ONNX type {code}", self.name);
                return Err(Flaw::Unsupported(what));
            }
        };
        if self.external {
            let what = format!("initialiser {:?} in a file of its own", self.name);
            return Err(Flaw::Unsupported(what));
        }
        if self.dims.len() > 8 {
            return malformed(format!("initialiser {:?} has {} dimensions", self.name, self.dims.len()));
        }
        elements(&self.dims)?;
        let bytes = match self.raw {
            Some(raw) => match TensorBytes::view(file, raw) {
                Some(bytes) => bytes,
                None => return malformed("raw data reaches beyond the end of the file"),
            },
            None if dtype == DType::F32 => self.floats.into(),
            None => narrowed(&self.varints, dtype).into(),
        };
        RawTensor::checked(self.name, self.dims, dtype, bytes)
    }
}

fn narrowed(values: &[u64], dtype: DType) -> Vec<u8> {
    let size = match dtype {
        DType::U8 | DType::I8 => 1,
        DType::I16 | DType::F16 | DType::BF16 => 2,
        DType::I32 => 4,
        _ => 8,
    };
    values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect()
}

// --- protobuf ---

fn fields(
    file: &Arc<Backing>,
    message: Range<usize>,
    mut on_field: impl FnMut(u64, Field) -> Result<(), Flaw>,
) -> Result<(), Flaw> {
    let base = message.start;
    let Some(bytes) = file.get(message) else {
        return malformed("a message reaches beyond the end of the file");
    };
    let mut scan = Scan::new(bytes);
    while scan.left() > 0 {
        let key = varint(&mut scan)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut scan)?),
            1 => {
                scan.u64()?;
                Field::Fixed64
            }
            2 => {
                let len = index(varint(&mut scan)?)?;
                let start = base + scan.position();
                scan.take(len)?;
                Field::Bytes(start..start + len)
            }
            5 => Field::Fixed32(scan.u32()?),
            kind => return malformed(format!("wire type {kind} at offset {}", scan.position())),
        };
        on_field(key >> 3, field)?;
    }
    Ok(())
}

fn varint(scan: &mut Scan<'_>) -> Result<u64, Flaw> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = scan.u8()?;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    malformed("a number is longer than ten bytes")
}

fn varints(packed: &[u8], mut on_value: impl FnMut(u64) -> Result<(), Flaw>) -> Result<(), Flaw> {
    let mut scan = Scan::new(packed);
    while scan.left() > 0 {
        on_value(varint(&mut scan)?)?;
    }
    Ok(())
}
