//! Where a tensor lies: to a device and back.

use std::sync::Arc;

use super::{DType, Store, Tensor};
use crate::gpu::{Arg, Gpu, Memory};
use crate::{Cx, Device, KernelError, Shape};

impl Tensor {
    /// Returns the same tensor where the context computes; shared when it lies there already.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        match (cx.gpu(), &*self.store) {
            (None, Store::Host(_)) => Ok(self.clone()),
            (None, Store::Device(_)) => self.to_host(),
            (Some(gpu), Store::Device(memory)) if Arc::ptr_eq(memory.gpu(), gpu) => Ok(self.clone()),
            (Some(gpu), Store::Device(_)) => self.to_host()?.moved(gpu),
            (Some(gpu), Store::Host(_)) => self.moved(gpu),
        }
    }

    /// Returns the same tensor in host memory; waits for the device when it lies on one.
    pub fn to_host(&self) -> Result<Self, KernelError> {
        let Store::Device(memory) = &*self.store else { return Ok(self.clone()) };
        let mut host = Self::zeros(self.dtype, self.shape)?;
        let start = self.byte_range().0;
        if let Some(Store::Host(buffer)) = Arc::get_mut(&mut host.store) {
            memory.gpu().download(memory, start, buffer.bytes_mut())?;
        }
        Ok(host)
    }

    /// Makes a tensor of zeros where the context computes.
    pub fn zeros_on(cx: &Cx, dtype: DType, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        match cx.gpu() {
            Some(gpu) => Self::zeros_of(gpu, dtype, shape),
            None => Self::zeros(dtype, shape),
        }
    }

    /// Makes a tensor of zeros on a device.
    pub(crate) fn zeros_of(gpu: &Arc<Gpu>, dtype: DType, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        let made = Self::unwritten(gpu, dtype, shape)?;
        if let Store::Device(memory) = &*made.store {
            gpu.zero(memory)?;
        }
        Ok(made)
    }

    /// Makes a tensor on a device whose elements are yet to be written.
    pub(crate) fn unwritten(gpu: &Arc<Gpu>, dtype: DType, shape: impl Into<Shape>) -> Result<Self, KernelError> {
        let shape = shape.into();
        let bytes = shape.len().checked_mul(dtype.size()).ok_or(KernelError::Memory { bytes: usize::MAX })?;
        Ok(Self { store: Arc::new(Store::Device(Memory::new(gpu, bytes)?)), start: 0, shape, dtype })
    }

    /// Returns the device the tensor lies on, if it is not the host.
    pub(crate) fn gpu(&self) -> Option<&Arc<Gpu>> {
        match &*self.store {
            Store::Host(_) => None,
            Store::Device(memory) => Some(memory.gpu()),
        }
    }

    /// Returns where the elements lie on the device, for a kernel of `op` to read.
    pub(crate) fn at(&self, gpu: &Gpu, op: &'static str, want: DType) -> Result<Arg, KernelError> {
        self.wants(op, want)?;
        match &*self.store {
            Store::Device(memory) if std::ptr::eq(&**memory.gpu(), gpu) => {
                Ok(Arg::Pointer(memory.address() + self.byte_range().0 as u64))
            }
            _ => Err(KernelError::Elsewhere { op, want: gpu.device(), got: self.device() }),
        }
    }

    /// Returns where the elements lie on the device, for a kernel of `op` to write; copies them first when they are shared.
    pub(crate) fn at_mut(&mut self, gpu: &Gpu, op: &'static str, want: DType) -> Result<Arg, KernelError> {
        if self.device() != Device::Cpu && Arc::get_mut(&mut self.store).is_none() {
            self.detach()?;
        }
        self.at(gpu, op, want)
    }

    /// Copies a tensor in host memory to a device.
    pub(crate) fn moved(&self, gpu: &Arc<Gpu>) -> Result<Self, KernelError> {
        let memory = gpu.upload(self.bytes())?;
        Ok(Self { store: Arc::new(Store::Device(memory)), start: 0, ..self.clone() })
    }
}
