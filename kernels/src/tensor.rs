//! The tensor: a contiguous, row-major view of shared bytes. Immutable once shared; the sole owner may write.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use crate::buffer::Buffer;
use crate::error::{KernelError, below, need};
use crate::gpu::{self, Memory};
use crate::{Device, Shape};

mod place;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// The upper half of a 32-bit float.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer (token ids, indices).
    U32,
    /// Byte.
    U8,
}

/// A Rust type that tensors hold.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// Its name at run time.
    const DTYPE: DType;
}

/// A contiguous, row-major array; clones, reshapes and row ranges share its bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    store: Arc<Store>,
    /// Where the view starts, in elements.
    start: usize,
    shape: Shape,
    dtype: DType,
}

/// The bytes that views share.
#[derive(Debug)]
enum Store {
    Host(Buffer),
    Device(Memory),
}

mod sealed {
    /// Only the types of [`super::DType`] are elements.
    pub trait Sealed {}
}

// --- impl DType ---

impl DType {
    /// Returns the bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::BF16 => 2,
            Self::U8 => 1,
        }
    }
}

// --- impl Element ---

impl sealed::Sealed for f32 {}
impl sealed::Sealed for bf16 {}
impl sealed::Sealed for i32 {}
impl sealed::Sealed for u32 {}
impl sealed::Sealed for u8 {}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for u32 {
    const DTYPE: DType = DType::U32;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

// --- impl Tensor ---

impl Tensor {
    /// Makes a tensor of zeros in host memory.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        Self::of(Buffer::zeroed, dtype, shape.into())
    }

    /// Makes a tensor for an operation's result: `write` writes every element, none of which is zero before.
    pub(crate) fn written<T: Element>(
        shape: impl Into<Shape>,
        write: impl FnOnce(&mut [T]),
    ) -> Result<Self, KernelError> {
        let mut tensor = Self::stale(T::DTYPE, shape)?;
        write(tensor.as_mut_slice()?);
        Ok(tensor)
    }

    /// Makes a tensor in host memory that holds whatever was left there: its reader must not look at what it did not write.
    pub(crate) fn stale(dtype: DType, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        Self::of(Buffer::stale, dtype, shape.into())
    }

    fn of(
        buffer: impl Fn(usize) -> Result<Buffer, KernelError>,
        dtype: DType,
        shape: Shape,
    ) -> Result<Self, KernelError> {
        let bytes = shape.len().checked_mul(dtype.size());
        let bytes = bytes.ok_or(KernelError::Memory { bytes: usize::MAX })?;
        Ok(Self { store: Arc::new(Store::Host(buffer(bytes)?)), start: 0, shape, dtype })
    }

    /// Copies elements into a tensor of the given shape.
    pub fn from_slice<T: Element>(items: &[T], shape: impl Into<Shape>) -> Result<Self, KernelError> {
        let shape = shape.into();
        let given = Shape::from([items.len()]);
        let rule = "the shape must hold the given elements";
        need(items.len() == shape.len(), "from_slice", rule, &[shape, given])?;
        Self::filled(shape, |out: &mut [T]| out.copy_from_slice(items))
    }

    /// Makes an `f32` tensor of the given shape.
    pub fn from_f32(items: Vec<f32>, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        Self::from_slice(&items, shape)
    }

    /// Makes a `u32` tensor of the given shape.
    pub fn from_u32(items: Vec<u32>, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        Self::from_slice(&items, shape)
    }

    /// Makes a tensor whose zeroed elements `fill` writes.
    pub fn filled<T: Element>(shape: impl Into<Shape>, fill: impl FnOnce(&mut [T])) -> Result<Self, KernelError> {
        let mut tensor = Self::zeros(T::DTYPE, shape)?;
        fill(tensor.as_mut_slice()?);
        Ok(tensor)
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns where the bytes lie.
    pub fn device(&self) -> Device {
        match &*self.store {
            Store::Host(_) => Device::Cpu,
            Store::Device(memory) => memory.gpu().device(),
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Says whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.is_empty()
    }

    /// Returns the same elements under another shape of the same size.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        let shape = shape.into();
        let rule = "both shapes must have the same size";
        need(shape.len() == self.len(), "reshape", rule, &[self.shape, shape])?;
        let mut view = self.clone();
        view.shape = shape;
        Ok(view)
    }

    /// Returns the view of a range along the outermost dimension.
    pub fn rows(&self, range: Range<usize>) -> Result<Self, KernelError> {
        need(self.shape.rank() > 0, "rows", "a scalar has no rows", &[self.shape])?;
        let count = self.dims()[0];
        below("rows", "end", range.end, count + 1)?;
        below("rows", "start", range.start, range.end + 1)?;
        let stride: usize = self.dims()[1..].iter().product();
        let mut view = self.clone();
        view.start += range.start * stride;
        view.shape = self.shape.with_first(range.len());
        Ok(view)
    }

    /// Returns the elements, if they are of type `T` and in host memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], KernelError> {
        self.wants("as_slice", T::DTYPE)?;
        let bytes = self.held().ok_or_else(|| self.elsewhere("as_slice"))?;
        Ok(bytemuck::cast_slice(bytes))
    }

    /// Returns the elements for writing, as [`Tensor::as_slice`]; copies them first when they are shared.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        self.wants("as_mut_slice", T::DTYPE)?;
        if Arc::get_mut(&mut self.store).is_none() {
            self.detach()?;
        }
        let (start, end) = self.byte_range();
        let elsewhere = self.elsewhere("as_mut_slice");
        match Arc::get_mut(&mut self.store) {
            Some(Store::Host(buffer)) => Ok(bytemuck::cast_slice_mut(&mut buffer.bytes_mut()[start..end])),
            _ => Err(elsewhere),
        }
    }

    /// Returns the elements of an `f32` tensor.
    pub fn f32s(&self) -> Result<&[f32], KernelError> {
        self.as_slice()
    }

    /// Returns the elements of a `u32` tensor.
    pub fn u32s(&self) -> Result<&[u32], KernelError> {
        self.as_slice()
    }

    /// Returns the elements of an `f32` tensor for writing; copies them first when they are shared.
    pub fn f32s_mut(&mut self) -> Result<&mut [f32], KernelError> {
        self.as_mut_slice()
    }

    /// Returns the bytes of the elements of a tensor in host memory.
    pub fn bytes(&self) -> &[u8] {
        self.held().expect("invariant: bytes are asked of tensors in host memory")
    }

    /// Returns how many bytes the elements have, wherever they lie.
    pub fn byte_len(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// Returns the same numbers as `f32`; widening is exact, an `f32` tensor is shared.
    pub fn to_f32(&self) -> Result<Self, KernelError> {
        if self.dtype == DType::F32 {
            return Ok(self.clone());
        }
        if let Some(gpu) = self.gpu() {
            return gpu::ops::to_f32(gpu, self);
        }
        let halves: &[bf16] = self.as_slice()?;
        Self::filled(self.shape, |out: &mut [f32]| {
            for (wide, half) in out.iter_mut().zip(halves) {
                *wide = half.to_f32();
            }
        })
    }

    /// Returns the same numbers rounded to the nearest `bf16`; a `bf16` tensor is shared.
    pub fn to_bf16(&self) -> Result<Self, KernelError> {
        if self.dtype == DType::BF16 {
            return Ok(self.clone());
        }
        if let Some(gpu) = self.gpu() {
            return gpu::ops::to_bf16(gpu, self);
        }
        let floats = self.f32s()?;
        Self::filled(self.shape, |out: &mut [bf16]| {
            for (half, &wide) in out.iter_mut().zip(floats) {
                *half = bf16::from_f32(wide);
            }
        })
    }

    pub(crate) fn wants(&self, op: &'static str, want: DType) -> Result<(), KernelError> {
        let got = self.dtype;
        if got == want { Ok(()) } else { Err(KernelError::DType { op, want, got }) }
    }

    fn byte_range(&self) -> (usize, usize) {
        let start = self.start * self.dtype.size();
        (start, start + self.byte_len())
    }

    /// The bytes, if they are in host memory.
    fn held(&self) -> Option<&[u8]> {
        let (start, end) = self.byte_range();
        match &*self.store {
            Store::Host(buffer) => Some(&buffer.bytes()[start..end]),
            Store::Device(_) => None,
        }
    }

    fn elsewhere(&self, op: &'static str) -> KernelError {
        KernelError::Elsewhere { op, want: Device::Cpu, got: self.device() }
    }

    /// Moves the view to bytes of its own.
    fn detach(&mut self) -> Result<(), KernelError> {
        let (start, end) = self.byte_range();
        let own = match &*self.store {
            Store::Host(buffer) => {
                let mut own = Buffer::zeroed(end - start)?;
                own.bytes_mut().copy_from_slice(&buffer.bytes()[start..end]);
                Store::Host(own)
            }
            Store::Device(memory) => Store::Device(memory.copied(start, end - start)?),
        };
        self.store = Arc::new(own);
        self.start = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(rows: usize, width: usize) -> Tensor {
        let items = (0..rows * width).map(|i| i as f32).collect();
        Tensor::from_f32(items, [rows, width]).unwrap()
    }

    #[test]
    fn views_share_bytes_and_writing_detaches_them() {
        let whole = counting(4, 3);
        let mut view = whole.rows(1..3).unwrap().reshape([6]).unwrap();
        assert_eq!(view.f32s().unwrap(), [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(view.bytes().as_ptr(), whole.bytes()[12..].as_ptr());
        view.f32s_mut().unwrap()[0] = 9.0;
        assert_eq!(view.f32s().unwrap()[0], 9.0);
        assert_eq!(whole.f32s().unwrap()[3], 3.0);
    }

    #[test]
    fn the_sole_owner_writes_in_place() {
        let mut tensor = counting(2, 2);
        let before = tensor.bytes().as_ptr();
        tensor.f32s_mut().unwrap()[3] = 0.5;
        assert_eq!(tensor.bytes().as_ptr(), before);
    }

    #[test]
    fn bad_shapes_ranges_and_types_are_errors() {
        let tensor = counting(4, 3);
        assert!(Tensor::from_f32(vec![0.0; 5], [2, 3]).is_err());
        assert!(tensor.reshape([5, 2]).is_err());
        assert!(tensor.rows(3..5).is_err());
        assert!(tensor.u32s().is_err());
        assert!(Tensor::zeros(DType::F32, [usize::MAX, 2]).is_err());
        assert!(tensor.rows(4..4).unwrap().is_empty());
    }

    #[test]
    fn bf16_keeps_what_it_can_hold_and_rounds_to_even() {
        let items = vec![1.0, -2.5, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0];
        let tensor = Tensor::from_f32(items, [4]).unwrap();
        let back = tensor.to_bf16().unwrap().to_f32().unwrap();
        assert_eq!(back.f32s().unwrap(), [1.0, -2.5, 1.0, 1.0 + 4.0 / 256.0]);
    }
}
