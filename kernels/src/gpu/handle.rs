//! The handle of a device: its memory, its stream, and what is being captured.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::capture::Mode;
use super::cuda::CudaDriver;
use super::driver::{Arg, Driver, Launch, Product};
use super::memory::{FreeMemory, KeptMemory, Memory, rounded};
use super::staged::Staged;
use crate::{Device, KernelError};

/// Which device to open, and how its kernels are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSettings {
    /// The device's number.
    pub ordinal: u16,
    /// Where NVRTC lies, if not where the loader looks.
    pub nvrtc: Option<PathBuf>,
}

/// A device: one stream, and the memory of its tensors. One compute thread works with it; others may drop its tensors.
#[derive(Debug)]
pub struct Gpu {
    driver: Box<dyn Driver>,
    free: Mutex<FreeMemory>,
    kept: Mutex<KeptMemory>,
    staged: Mutex<Staged>,
    mode: Mutex<Mode>,
}

// --- impl Gpu ---

impl Gpu {
    /// Opens a CUDA device.
    pub fn open(settings: &GpuSettings) -> Result<Arc<Self>, KernelError> {
        Ok(Self::with_driver(Box::new(CudaDriver::open(settings)?)))
    }

    /// Runs kernels on a driver of the caller's.
    pub fn with_driver(driver: Box<dyn Driver>) -> Arc<Self> {
        let (free, kept, staged, mode) = Default::default();
        Arc::new(Self { driver, free, kept, staged, mode })
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        Device::Cuda(self.driver.ordinal())
    }

    /// Returns the product's name.
    pub fn name(&self) -> String {
        self.driver.name()
    }

    /// Waits for everything that was asked of the device, and tells what went wrong in it.
    pub fn finish(&self) -> Result<(), KernelError> {
        self.driver.finish()
    }

    /// Gives memory that no tensor holds back to the device.
    pub fn trim(&self) {
        for (address, bytes) in held(&self.free).drain() {
            // SAFETY: free memory came from this driver with this size, and no tensor holds it.
            unsafe { self.driver.release(address, bytes) };
        }
    }

    pub(super) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    pub(super) fn mode(&self) -> MutexGuard<'_, Mode> {
        held(&self.mode)
    }

    /// Returns memory of exactly this rounded size.
    pub(super) fn take(&self, size: usize) -> Result<u64, KernelError> {
        let address = match &mut *self.mode() {
            Mode::Plain => return self.fresh(size),
            Mode::Recording(recording) => recording.take(size, || self.fresh(size))?,
            Mode::Replaying(replaying) => replaying.take(size)?,
        };
        held(&self.kept).enter(address, size);
        Ok(address)
    }

    /// Takes memory back that a tensor has left; captured steps keep theirs.
    pub(super) fn put_back(&self, address: u64, size: usize) {
        if !held(&self.kept).leave(address) {
            held(&self.free).put(address, size);
        } else {
            self.mode().takes_back(address, size);
        }
    }

    /// Takes back what captured steps used that are no more.
    pub(super) fn keep_no_more(&self, places: &[u64]) {
        let free = held(&self.kept).release(places);
        free.into_iter().for_each(|(address, size)| held(&self.free).put(address, size));
    }

    fn fresh(&self, size: usize) -> Result<u64, KernelError> {
        if let Some(address) = held(&self.free).take(size) {
            return Ok(address);
        }
        self.driver.allocate(size).or_else(|_| {
            // What is free in other sizes may be what is missing.
            self.trim();
            self.driver.allocate(size)
        })
    }

    /// Runs a kernel. Operations pass addresses of live tensors and extents that they have checked.
    pub(super) fn launch(
        &self,
        kernel: &'static str,
        grid: [u32; 3],
        threads: u32,
        args: &[Arg],
    ) -> Result<(), KernelError> {
        if grid.contains(&0) {
            return Ok(());
        }
        let launch = Launch { kernel, grid, threads, args };
        let mut mode = self.mode();
        if let Mode::Replaying(replaying) = &mut *mode {
            return replaying.launch(&launch);
        }
        // SAFETY: as the operations promise; kinds are compared with the kernels' own in the shim's tests.
        unsafe { self.driver.launch(&launch)? };
        mode.note_launch(&launch);
        Ok(())
    }

    /// Returns the multiple of rows that products by a library want, if there is one.
    pub(super) fn product_rows(&self) -> Option<usize> {
        self.driver.product_rows()
    }

    /// Computes a product by the driver's library, if it has one.
    pub(super) fn multiply(&self, product: &Product) -> Result<bool, KernelError> {
        let mut mode = self.mode();
        if let Mode::Replaying(replaying) = &mut *mode {
            return replaying.multiply(product);
        }
        // SAFETY: as for kernels.
        let done = unsafe { self.driver.multiply(product)? };
        mode.note_product(product, done);
        Ok(done)
    }

    /// Copies `bytes` within the device, to `to` from `start` on.
    pub(super) fn copy(
        &self,
        to: &Memory,
        start: usize,
        (from, from_start): (&Memory, usize),
        bytes: usize,
    ) -> Result<(), KernelError> {
        self.copy_at((to.address() + start as u64, from.address() + from_start as u64), bytes)
    }

    /// Copies `bytes` within the device, to the first address from the second.
    pub(super) fn copy_at(&self, (to, from): (u64, u64), bytes: usize) -> Result<(), KernelError> {
        if bytes == 0 {
            return Ok(());
        }
        let mut mode = self.mode();
        if let Mode::Replaying(replaying) = &mut *mode {
            return replaying.copy((to, from), bytes);
        }
        // SAFETY: both are within live tensors, as the operations have checked.
        unsafe { self.driver.copy(to, from, bytes)? };
        mode.note_copy((to, from), bytes);
        Ok(())
    }

    /// Fills a run with zeros.
    pub(crate) fn zero(&self, memory: &Memory) -> Result<(), KernelError> {
        if memory.bytes() == 0 {
            return Ok(());
        }
        let mut mode = self.mode();
        if let Mode::Replaying(replaying) = &mut *mode {
            return replaying.zero(memory.address(), memory.bytes());
        }
        // SAFETY: the memory is that long.
        unsafe { self.driver.zero(memory.address(), memory.bytes())? };
        mode.note_zero(memory.address(), memory.bytes());
        Ok(())
    }

    /// Copies bytes to new memory of the device.
    pub(crate) fn upload(self: &Arc<Self>, bytes: &[u8]) -> Result<Memory, KernelError> {
        self.mode().upload_follows();
        let memory = Memory::new(self, bytes.len())?;
        self.fill(memory.address(), bytes)?;
        Ok(memory)
    }

    /// Copies bytes to memory that was just taken.
    fn fill(&self, address: u64, bytes: &[u8]) -> Result<(), KernelError> {
        if bytes.is_empty() || self.mode().defers_upload(address, bytes)? {
            return Ok(());
        }
        // SAFETY: the memory at the address was taken with this length.
        unsafe { self.driver.upload(address, bytes) }
    }

    /// Returns where equal bytes of this use lie on the device, uploading them if they are not among the last ones: every
    /// layer of a step asks with the same ones. They stay there until some other uploads have followed.
    pub(super) fn staged(&self, usage: &'static str, bytes: &[u8]) -> Result<u64, KernelError> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let known = match self.mode().staged() {
            Some(staged) => staged.find(usage, bytes),
            None => held(&self.staged).find(usage, bytes),
        };
        if let Some(address) = known {
            return Ok(address);
        }
        self.mode().upload_follows();
        let address = self.take(rounded(bytes.len()))?;
        if let Err(error) = self.fill(address, bytes) {
            self.put_back(address, rounded(bytes.len()));
            return Err(error);
        }
        let oldest = match self.mode().staged() {
            Some(staged) => staged.keep(usage, bytes, address, usize::MAX),
            None => held(&self.staged).keep(usage, bytes, address, Staged::LAST),
        };
        if let Some((address, size)) = oldest {
            self.put_back(address, size);
        }
        Ok(address)
    }

    /// Copies bytes of the device to the host, when everything before is done.
    pub(crate) fn download(&self, memory: &Memory, start: usize, to: &mut [u8]) -> Result<(), KernelError> {
        if to.is_empty() {
            return Ok(());
        }
        self.mode().refuse_download()?;
        // SAFETY: the view lies within the memory.
        unsafe { self.driver.download(to, memory.address() + start as u64) }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let staged = held(&self.staged).drain();
        staged.into_iter().for_each(|(address, size)| self.put_back(address, size));
        self.trim();
    }
}

/// A panic elsewhere leaves these lists whole: each change is one call.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
