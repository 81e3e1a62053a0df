//! CUDA as a [`Driver`]: one context, one stream, modules compiled at first use. Never run on hardware.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::{result, sys};

use super::capture::Replay;
use super::driver::{Driver, Launch, Product};
use super::handle::GpuSettings;
use super::nvrtc::{Nvrtc, Target};
use super::probe;
use super::products::Products;
use super::sources::{Module, module_of};
use crate::KernelError;

/// A stream of a device.
#[derive(Debug)]
pub(super) struct CudaDriver {
    ordinal: u16,
    name: String,
    capability: u32,
    context: Context,
    stream: sys::CUstream,
    nvrtc: Nvrtc,
    products: Option<Products>,
    functions: Mutex<Functions>,
}

/// Kernels that were asked for, by name, and the modules they are in.
#[derive(Debug, Default)]
struct Functions {
    by_name: BTreeMap<&'static str, Function>,
    modules: Vec<(&'static str, sys::CUmodule)>,
}

#[derive(Clone, Copy, Debug)]
struct Function(sys::CUfunction);

/// The device's primary context, held.
#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: contexts, streams, modules and functions are handles that any thread may use; each call makes the context
// current on its own thread first.
unsafe impl Send for CudaDriver {}
// SAFETY: as above; the driver serialises calls itself, and the maps are behind a mutex.
unsafe impl Sync for CudaDriver {}

// --- impl CudaDriver ---

impl CudaDriver {
    /// Opens a device, or says why there is none.
    pub(super) fn open(settings: &GpuSettings) -> Result<Self, KernelError> {
        let found = probe().map_err(|none| failed("open", none))?;
        let there = found.into_iter().find(|gpu| gpu.ordinal == settings.ordinal);
        let described = there.ok_or_else(|| failed("open", format!("no CUDA device {}", settings.ordinal)))?;
        let nvrtc = Nvrtc::find(settings.nvrtc.as_deref())?;
        let context = Context::retain(settings.ordinal)?;
        context.enter()?;
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(told("stream"))?;
        Ok(Self {
            ordinal: settings.ordinal,
            name: described.name,
            capability: described.capability.0 * 10 + described.capability.1,
            context,
            stream,
            nvrtc,
            products: Products::find()?,
            functions: Mutex::default(),
        })
    }

    /// Returns a kernel, compiled and loaded with its module when it is asked for first.
    fn function(&self, kernel: &'static str) -> Result<sys::CUfunction, KernelError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.by_name.get(kernel) {
            return Ok(function.0);
        }
        let module = module_of(kernel).ok_or_else(|| failed(kernel, "no source defines it"))?;
        let handle = self.load(module)?;
        functions.modules.push((module.file, handle));
        for &name in module.kernels {
            let text = CString::new(name).map_err(|error| failed(name, error))?;
            // SAFETY: the module was just loaded and stays until the driver is dropped.
            let function = unsafe { result::module::get_function(handle, text) }.map_err(told(name))?;
            functions.by_name.insert(name, Function(function));
        }
        functions.by_name.get(kernel).map(|f| f.0).ok_or_else(|| failed(kernel, "its module does not list it"))
    }

    fn load(&self, module: &Module) -> Result<sys::CUmodule, KernelError> {
        let image = self.nvrtc.compile(module, Target::Cubin(self.capability))?;
        // SAFETY: the image is a whole cubin, which the driver copies.
        unsafe { result::module::load_data(image.as_ptr().cast()) }.map_err(told(module.file))
    }
}

// SAFETY: addresses come from cuMemAlloc, which aligns to 256 bytes; all else is in the order of one stream.
unsafe impl Driver for CudaDriver {
    fn ordinal(&self) -> u16 {
        self.ordinal
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn allocate(&self, bytes: usize) -> Result<u64, KernelError> {
        self.context.enter()?;
        // SAFETY: the caller treats it as uninitialised.
        unsafe { result::malloc_sync(bytes) }.map_err(|_| KernelError::Memory { bytes })
    }

    unsafe fn release(&self, address: u64, _bytes: usize) {
        // SAFETY: from `allocate`, and unused; freeing waits for the device.
        let freed = self.context.enter().is_ok() && unsafe { result::free_sync(address) }.is_ok();
        debug_assert!(freed, "memory that cannot be freed was not ours");
    }

    unsafe fn upload(&self, to: u64, from: &[u8]) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: as the caller promises; pageable memory is staged before the call returns.
        unsafe { result::memcpy_htod_async(to, from, self.stream) }.map_err(told("upload"))
    }

    unsafe fn download(&self, to: &mut [u8], from: u64) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: as the caller promises; the wait ends before `to` is given back.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream) }.map_err(told("download"))?;
        self.finish()
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: as the caller promises.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }.map_err(told("copy"))
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: as the caller promises.
        unsafe { result::memset_d8_async(at, 0, bytes, self.stream) }.map_err(told("zero"))
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), KernelError> {
        self.context.enter()?;
        let function = self.function(launch.kernel)?;
        let mut held: Vec<[u8; 8]> = launch.args.iter().map(|arg| arg.bytes()).collect();
        let mut places: Vec<*mut c_void> = held.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
        let [x, y, z] = launch.grid;
        let threads = (launch.threads, 1, 1);
        // SAFETY: as the caller promises; arguments are copied by the call.
        unsafe { result::launch_kernel(function, (x, y, z), threads, 0, self.stream, &mut places) }
            .map_err(told(launch.kernel))
    }

    unsafe fn multiply(&self, product: &Product) -> Result<bool, KernelError> {
        let Some(products) = &self.products else { return Ok(false) };
        self.context.enter()?;
        // SAFETY: as the caller promises.
        unsafe { products.run(product, self.stream) }
    }

    fn product_rows(&self) -> Option<usize> {
        self.products.as_ref().map(|_| Products::ROWS)
    }

    fn finish(&self) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: the stream lives as long as the driver.
        unsafe { result::stream::synchronize(self.stream) }.map_err(told("finish"))
    }

    /// In the relaxed mode, in which this thread may allocate meanwhile.
    fn begin_capture(&self) -> Result<(), KernelError> {
        self.context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is ours.
        unsafe { result::stream::begin_capture(self.stream, mode) }.map_err(told("begin_capture"))
    }

    fn end_capture(&self) -> Result<Box<dyn Replay>, KernelError> {
        self.context.enter()?;
        // SAFETY: the stream is ours; the graph is made executable and then not needed.
        let made = unsafe {
            result::stream::end_capture(self.stream).and_then(|graph| {
                let made = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
                result::graph::destroy(graph).and(made)
            })
        };
        let executable = made.map_err(told("end_capture"))?;
        Ok(Box::new(CudaGraph { executable, stream: self.stream, context: self.context.held_again()? }))
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        let functions = self.functions.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.context.enter().is_err() {
            return;
        }
        // SAFETY: nothing runs after the stream is done; modules and stream are ours and not used again.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            self.products = None;
            for (_, module) in functions.modules.drain(..) {
                let _ = result::module::unload(module);
            }
            let _ = result::stream::destroy(self.stream);
        }
    }
}

// --- impl Context ---

impl Context {
    fn retain(ordinal: u16) -> Result<Self, KernelError> {
        let device = result::device::get(i32::from(ordinal)).map_err(told("device"))?;
        Self::of(device)
    }

    fn held_again(&self) -> Result<Self, KernelError> {
        Self::of(self.device)
    }

    fn of(device: sys::CUdevice) -> Result<Self, KernelError> {
        // SAFETY: the driver gave the device; the context is released on drop.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(told("context"))?;
        Ok(Self { device, context })
    }

    /// Makes it this thread's.
    fn enter(&self) -> Result<(), KernelError> {
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.context) }.map_err(told("context"))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once by `of`.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// A captured step. Its device's stream outlives it: captures hold their device.
#[derive(Debug)]
struct CudaGraph {
    executable: sys::CUgraphExec,
    stream: sys::CUstream,
    context: Context,
}

// SAFETY: a handle that one thread at a time uses.
unsafe impl Send for CudaGraph {}

impl Replay for CudaGraph {
    fn run(&self) -> Result<(), KernelError> {
        self.context.enter()?;
        // SAFETY: both are valid: see `CudaGraph`.
        unsafe { result::graph::launch(self.executable, self.stream) }.map_err(told("graph"))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: ours, and what ran of it is done: a captured step is given up after a wait.
        let _ = self.context.enter().map(|()| unsafe { result::graph::exec_destroy(self.executable) });
    }
}

pub(super) fn failed(what: impl ToString, reason: impl ToString) -> KernelError {
    KernelError::Gpu { what: what.to_string(), reason: reason.to_string() }
}

fn told(what: &'static str) -> impl Fn(result::DriverError) -> KernelError {
    move |error| failed(what, error)
}
