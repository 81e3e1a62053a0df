//! What kernels run on: allocation, copies and launches in the order of one stream.

use std::fmt::Debug;

use crate::KernelError;
use crate::gpu::capture::Replay;

/// An argument of a kernel, of its parameter's kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// An address in the device's memory.
    Pointer(u64),
    /// A 32-bit extent, index or flag.
    U32(u32),
    /// A 64-bit count.
    U64(u64),
    /// A number.
    F32(f32),
}

/// One run of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch<'a> {
    /// The kernel's name, as in [`crate::gpu::MODULES`].
    pub kernel: &'static str,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, along x.
    pub threads: u32,
    /// The kernel's arguments.
    pub args: &'a [Arg],
}

/// A matrix product that a library may compute: y = x W^T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of x and y.
    pub rows: usize,
    /// The length of a row of x and W.
    pub inputs: usize,
    /// The length of a row of y.
    pub outputs: usize,
    /// Whether x and W are `bf16` (y is always `f32`).
    pub halves: bool,
    /// Where x lies, `[rows][inputs]`.
    pub x: u64,
    /// Where W lies, `[outputs][inputs]`.
    pub weight: u64,
    /// Where y lies, `[rows][outputs]`.
    pub y: u64,
}

/// A device's memory and its one stream: everything happens in the order of the calls, whenever the device gets to it.
///
/// # Safety
/// An implementation keeps to what each method promises; addresses that [`Driver::allocate`] gives are unique, aligned to
/// 256 bytes and valid until they are released.
pub unsafe trait Driver: Debug + Send + Sync {
    /// Returns the device's number.
    fn ordinal(&self) -> u16;

    /// Returns the product's name.
    fn name(&self) -> String;

    /// Returns uninitialised memory.
    fn allocate(&self, bytes: usize) -> Result<u64, KernelError>;

    /// Gives memory back.
    ///
    /// # Safety
    /// It came from [`Driver::allocate`], with this size, and nothing uses it any more.
    unsafe fn release(&self, address: u64, bytes: usize);

    /// Copies from the host; `from` may be changed when the call has returned.
    ///
    /// # Safety
    /// The device's memory at `to` is as long as `from`.
    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), KernelError>;

    /// Copies to the host, after everything before it; returns when the bytes are there.
    ///
    /// # Safety
    /// The device's memory at `from` is as long as `to`.
    unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), KernelError>;

    /// Copies within the device.
    ///
    /// # Safety
    /// Both places hold `bytes` and do not overlap.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), KernelError>;

    /// Fills with zeros.
    ///
    /// # Safety
    /// The place holds `bytes`.
    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), KernelError>;

    /// Runs a kernel.
    ///
    /// # Safety
    /// The arguments are of the kernel's kinds, and the memory they point to holds what the kernel reads and writes for
    /// the extents it is given.
    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), KernelError>;

    /// Computes a product by a library whose rows do not depend on their batch; says `false` where there is none.
    ///
    /// # Safety
    /// The memory holds what the product reads and writes.
    unsafe fn multiply(&self, product: &Product) -> Result<bool, KernelError>;

    /// Returns the multiple of rows that [`Driver::multiply`] wants, if there is such a library.
    fn product_rows(&self) -> Option<usize>;

    /// Waits for everything before it, and tells what went wrong in it.
    fn finish(&self) -> Result<(), KernelError>;

    /// From now on notes what is launched instead of running it.
    fn begin_capture(&self) -> Result<(), KernelError>;

    /// Ends noting; returns what was noted, to run again and again.
    fn end_capture(&self) -> Result<Box<dyn Replay>, KernelError>;
}

// --- impl Arg ---

impl Arg {
    /// Returns the argument's bytes, at the start of eight; all machines with CUDA are little-endian.
    pub fn bytes(self) -> [u8; 8] {
        match self {
            Self::Pointer(v) | Self::U64(v) => v.to_le_bytes(),
            Self::U32(v) => u64::from(v).to_le_bytes(),
            Self::F32(v) => u64::from(v.to_bits()).to_le_bytes(),
        }
    }

    /// Returns the letter of its kind: p, u, l or f.
    pub fn kind(self) -> char {
        match self {
            Self::Pointer(_) => 'p',
            Self::U32(_) => 'u',
            Self::U64(_) => 'l',
            Self::F32(_) => 'f',
        }
    }
}

impl From<u32> for Arg {
    fn from(v: u32) -> Self {
        Self::U32(v)
    }
}

impl From<u64> for Arg {
    fn from(v: u64) -> Self {
        Self::U64(v)
    }
}

impl From<f32> for Arg {
    fn from(v: f32) -> Self {
        Self::F32(v)
    }
}
