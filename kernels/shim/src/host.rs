//! A driver that runs the kernels on the host.
//!
//! Fresh memory holds what is not a number and is fenced on both sides: a kernel that reads what nobody wrote shows in
//! its result, one that writes beyond its output is found when the memory is released or the driver is asked to finish.
//! Every launch runs the threads and blocks in another order.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use mstar_kernels::gpu::{Arg, Driver, Gpu, Launch, Product, Replay};
use mstar_kernels::{KernelError, bf16};

use crate::library::{Library, library};

/// Bytes of a fence, and the alignment.
const FENCE: usize = 256;
const UNWRITTEN: u8 = 0xff;
/// Orders of threads and blocks: forward, backward, five shuffled ones.
const SCHEDULES: u32 = 7;

/// The host as a device.
#[derive(Debug)]
pub struct HostDriver {
    library: &'static Library,
    memory: Mutex<BTreeMap<u64, usize>>,
    launches: AtomicU32,
    /// What is noted instead of run, while a step is captured.
    noted: Mutex<Option<Vec<Noted>>>,
    /// Rows that products are padded to, if this driver computes them.
    product_rows: Option<usize>,
}

#[derive(Clone, Debug)]
enum Noted {
    Launch { kernel: &'static str, grid: [u32; 3], threads: u32, args: Vec<Arg> },
    Copy { to: u64, from: u64, bytes: usize },
    Zero { at: u64, bytes: usize },
    Multiply(Product),
}

#[derive(Debug)]
struct NotedStep {
    library: &'static Library,
    noted: Vec<Noted>,
}

// --- impl HostDriver ---

impl HostDriver {
    /// Returns a driver, or nothing where the kernels cannot be compiled.
    pub fn new() -> Option<Self> {
        let (memory, launches, noted) = Default::default();
        library().map(|library| Self { library, memory, launches, noted, product_rows: None })
    }

    /// Computes products by itself, as a library would, on rows padded to a multiple.
    pub fn with_products(mut self, rows: usize) -> Self {
        self.product_rows = Some(rows);
        self
    }

    fn memory(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.memory.lock().expect("no test panics here")
    }

    /// Notes something, or says that it is to be done.
    fn note(&self, make: impl FnOnce() -> Noted) -> bool {
        let mut noted = self.noted.lock().expect("no test panics here");
        noted.as_mut().map(|list| list.push(make())).is_some()
    }

    fn check_fences(&self, address: u64, bytes: usize) -> Result<(), KernelError> {
        // SAFETY: both fences belong to the allocation.
        let (before, after) = unsafe {
            let start = address as *const u8;
            (std::slice::from_raw_parts(start.sub(FENCE), FENCE), std::slice::from_raw_parts(start.add(bytes), FENCE))
        };
        let whole = before.iter().chain(after).all(|&byte| byte == UNWRITTEN);
        if whole { Ok(()) } else { Err(failed("memory", "a kernel wrote beyond its output")) }
    }
}

fn failed(what: &str, reason: &str) -> KernelError {
    KernelError::Gpu { what: what.to_owned(), reason: reason.to_owned() }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes + 2 * FENCE, FENCE).expect("small")
}

// SAFETY: addresses are those of live allocations, aligned to 256 bytes.
unsafe impl Driver for HostDriver {
    fn ordinal(&self) -> u16 {
        0
    }

    fn name(&self) -> String {
        "the host's shim".to_owned()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, KernelError> {
        // SAFETY: the layout is not empty; all of it is written at once.
        let start = unsafe {
            let start = alloc(layout(bytes));
            assert!(!start.is_null(), "tests are small");
            start.write_bytes(UNWRITTEN, bytes + 2 * FENCE);
            start.add(FENCE)
        };
        self.memory().insert(start as u64, bytes);
        Ok(start as u64)
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        assert_eq!(self.memory().remove(&address), Some(bytes), "released as it was allocated");
        let fenced = self.check_fences(address, bytes);
        // SAFETY: from `allocate`, with this layout.
        unsafe { dealloc((address as *mut u8).sub(FENCE), layout(bytes)) };
        assert!(fenced.is_ok() || std::thread::panicking(), "{fenced:?}");
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), KernelError> {
        if self.noted.lock().expect("no test panics here").is_some() {
            return Err(failed("upload", "of a step that is being captured"));
        }
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), KernelError> {
        // SAFETY: as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        self.finish()
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), KernelError> {
        if !self.note(|| Noted::Copy { to, from, bytes }) {
            // SAFETY: as the caller promises.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        }
        Ok(())
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), KernelError> {
        if !self.note(|| Noted::Zero { at, bytes }) {
            // SAFETY: as the caller promises.
            unsafe { (at as *mut u8).write_bytes(0, bytes) };
        }
        Ok(())
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), KernelError> {
        let Launch { kernel, grid, threads, args } = *launch;
        if self.note(|| Noted::Launch { kernel, grid, threads, args: args.to_vec() }) {
            return Ok(());
        }
        let schedule = self.launches.fetch_add(1, Ordering::Relaxed) % SCHEDULES;
        // SAFETY: as the caller promises.
        unsafe { self.library.launch(launch, schedule) }.map_err(|reason| failed("shim", &reason))
    }

    unsafe fn multiply(&self, product: &Product) -> Result<bool, KernelError> {
        let Some(multiple) = self.product_rows else { return Ok(false) };
        assert!(product.rows.is_multiple_of(multiple), "{} rows are not padded", product.rows);
        if !self.note(|| Noted::Multiply(*product)) {
            // SAFETY: as the caller promises.
            unsafe { multiply(product) };
        }
        Ok(true)
    }

    fn product_rows(&self) -> Option<usize> {
        self.product_rows
    }

    fn finish(&self) -> Result<(), KernelError> {
        let memory = self.memory();
        memory.iter().try_for_each(|(&address, &bytes)| self.check_fences(address, bytes))
    }

    fn begin_capture(&self) -> Result<(), KernelError> {
        *self.noted.lock().expect("no test panics here") = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<Box<dyn Replay>, KernelError> {
        let noted = self.noted.lock().expect("no test panics here").take();
        let noted = noted.ok_or_else(|| failed("capture", "nothing was begun"))?;
        Ok(Box::new(NotedStep { library: self.library, noted }))
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        let left = self.memory().len();
        assert!(left == 0 || std::thread::panicking(), "{left} pieces of memory were not released");
    }
}

impl Replay for NotedStep {
    fn run(&self) -> Result<(), KernelError> {
        for noted in self.noted.iter().cloned() {
            // SAFETY: the same calls as when they were noted; captured steps keep their memory.
            unsafe {
                match noted {
                    Noted::Launch { kernel, grid, threads, args } => self
                        .library
                        .launch(&Launch { kernel, grid, threads, args: &args }, 2)
                        .map_err(|reason| failed("shim", &reason))?,
                    Noted::Copy { to, from, bytes } => {
                        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
                    }
                    Noted::Zero { at, bytes } => (at as *mut u8).write_bytes(0, bytes),
                    Noted::Multiply(product) => multiply(&product),
                }
            }
        }
        Ok(())
    }
}

/// # Safety
/// The memory holds what the product reads and writes.
unsafe fn multiply(product: &Product) {
    let Product { rows, inputs, outputs, halves, .. } = *product;
    let wide = |at: u64, i: usize| {
        // SAFETY: as the caller promises.
        unsafe {
            match halves {
                true => (*(at as *const bf16).add(i)).to_f32(),
                false => *(at as *const f32).add(i),
            }
        }
    };
    for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |output| (row, output))) {
        let products =
            (0..inputs).map(|k| wide(product.x, row * inputs + k) * wide(product.weight, output * inputs + k));
        // SAFETY: as the caller promises.
        unsafe { *(product.y as *mut f32).add(row * outputs + output) = products.sum() };
    }
}

/// Returns a new device, or nothing where the kernels cannot be compiled.
pub fn device() -> Option<Arc<Gpu>> {
    HostDriver::new().map(device_with)
}

/// Returns a new device with this driver.
pub fn device_with(driver: HostDriver) -> Arc<Gpu> {
    Gpu::with_driver(Box::new(driver))
}
