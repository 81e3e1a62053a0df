//! A tensor as it lies in a file: name, shape, element type and bytes.

use half::{bf16, f16};

use crate::error::{Flaw, malformed};
use crate::gguf::dequant;
use crate::mapped::TensorBytes;
use crate::scan::elements;

/// A block format of GGML's quantisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GgmlQ {
    /// 32 weights: scale, 4 bits each, offset 8.
    Q4_0,
    /// 32 weights: scale and minimum, 4 bits each.
    Q4_1,
    /// 32 weights: scale, 5 bits each, offset 16.
    Q5_0,
    /// 32 weights: scale and minimum, 5 bits each.
    Q5_1,
    /// 32 weights: scale, 8 bits each.
    Q8_0,
    /// 256 weights: eight 6-bit scales and minima, 4 bits each.
    Q4K,
    /// 256 weights: sixteen 8-bit scales, 6 bits each.
    Q6K,
}

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// Signed byte.
    I8,
    /// 16-bit integer.
    I16,
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// Unsigned byte.
    U8,
    /// Quantised blocks along the last dimension.
    GgmlQ(GgmlQ),
}

/// A tensor as it lies in a file; cloning shares the bytes.
#[derive(Debug, Clone)]
pub struct RawTensor {
    /// Its name in the file.
    pub name: String,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
    /// The type of its elements.
    pub dtype: DType,
    /// Its elements, little-endian, row-major, at any alignment.
    pub bytes: TensorBytes,
}

// --- impl GgmlQ ---

impl GgmlQ {
    /// How many weights a block holds.
    pub const fn block_weights(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// How many bytes a block takes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }
}

// --- impl DType ---

impl DType {
    /// How many bytes a tensor of this shape takes; `None` when blocks do not fit or it overflows.
    pub fn bytes_for(self, shape: &[usize]) -> Option<usize> {
        let count = elements(shape).ok()?;
        match self {
            Self::U8 | Self::I8 => Some(count),
            Self::F16 | Self::BF16 | Self::I16 => count.checked_mul(2),
            Self::F32 | Self::I32 => count.checked_mul(4),
            Self::I64 => count.checked_mul(8),
            Self::GgmlQ(q) => {
                let row = *shape.last()?;
                if row % q.block_weights() != 0 {
                    return None;
                }
                (count / q.block_weights()).checked_mul(q.block_bytes())
            }
        }
    }
}

// --- impl RawTensor ---

impl RawTensor {
    /// Builds a tensor after checking that its bytes are exactly as many as its shape needs.
    pub(crate) fn checked(name: String, shape: Vec<usize>, dtype: DType, bytes: TensorBytes) -> Result<Self, Flaw> {
        match dtype.bytes_for(&shape) {
            Some(needed) if needed == bytes.len() => Ok(Self { name, shape, dtype, bytes }),
            Some(needed) => {
                malformed(format!("tensor {name:?} of shape {shape:?} needs {needed} bytes, has {}", bytes.len()))
            }
            None => malformed(format!("tensor {name:?} cannot have shape {shape:?} as {dtype:?}")),
        }
    }

    /// An `f32` tensor from values; the caller's shape must hold as many.
    pub(crate) fn from_f32(name: String, shape: Vec<usize>, values: &[f32]) -> Result<Self, Flaw> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::checked(name, shape, DType::F32, bytes.into())
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its elements as `f32`: dequantised, widened or converted.
    pub fn to_f32(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.elements()];
        let bytes: &[u8] = &self.bytes;
        match self.dtype {
            DType::F32 => widen(bytes, &mut out, f32::from_le_bytes),
            DType::F16 => widen(bytes, &mut out, |b| f16::from_le_bytes(b).to_f32()),
            DType::BF16 => widen(bytes, &mut out, |b| bf16::from_le_bytes(b).to_f32()),
            DType::I8 => widen(bytes, &mut out, |[b]: [u8; 1]| f32::from(b as i8)),
            DType::U8 => widen(bytes, &mut out, |[b]: [u8; 1]| f32::from(b)),
            DType::I16 => widen(bytes, &mut out, |b| f32::from(i16::from_le_bytes(b))),
            DType::I32 => widen(bytes, &mut out, |b| i32::from_le_bytes(b) as f32),
            DType::I64 => widen(bytes, &mut out, |b| i64::from_le_bytes(b) as f32),
            DType::GgmlQ(q) => dequant::blocks(q, bytes, &mut out),
        }
        out
    }

    /// Its elements as integers, for index and setting tensors; `None` for floats and blocks.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        let bytes: &[u8] = &self.bytes;
        let mut out = vec![0i64; self.elements()];
        match self.dtype {
            DType::I8 => widen(bytes, &mut out, |[b]: [u8; 1]| i64::from(b as i8)),
            DType::U8 => widen(bytes, &mut out, |[b]: [u8; 1]| i64::from(b)),
            DType::I16 => widen(bytes, &mut out, |b| i64::from(i16::from_le_bytes(b))),
            DType::I32 => widen(bytes, &mut out, |b| i64::from(i32::from_le_bytes(b))),
            DType::I64 => widen(bytes, &mut out, i64::from_le_bytes),
            _ => return None,
        }
        Some(out)
    }
}

fn widen<const N: usize, T>(bytes: &[u8], out: &mut [T], convert: impl Fn([u8; N]) -> T) {
    let (items, _) = bytes.as_chunks::<N>();
    for (to, &from) in out.iter_mut().zip(items) {
        *to = convert(from);
    }
}
