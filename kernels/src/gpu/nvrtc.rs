//! Compiling kernels at run time; needs NVRTC, but no GPU.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use cudarc::nvrtc::{result, sys};

use super::sources::{HEADERS, Module};
use crate::KernelError;

/// The compiler, once its library is found.
#[derive(Clone, Copy, Debug)]
pub struct Nvrtc(());

/// What to compile to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Machine code of a compute capability, 90 for 9.0; it runs on that one and those of the same major number after it.
    Cubin(u32),
    /// The portable assembly of a compute capability; newer drivers translate it.
    Ptx(u32),
}

impl Nvrtc {
    /// Finds the library: at `library`, or where the loader looks.
    pub fn find(library: Option<&Path>) -> Result<Self, KernelError> {
        if let Some(path) = library {
            preload(path)?;
        }
        // SAFETY: asks the loader whether the library is there.
        if unsafe { sys::is_culib_present() } {
            Ok(Self(()))
        } else {
            Err(failed("nvrtc", "the library is not installed (PyPI: nvidia-cuda-nvrtc-cu12)"))
        }
    }

    /// Compiles a module.
    pub fn compile(self, module: &Module, target: Target) -> Result<Vec<u8>, KernelError> {
        let program = Program::new(module)?;
        let architecture = match target {
            Target::Cubin(capability) => format!("--gpu-architecture=sm_{capability}"),
            Target::Ptx(capability) => format!("--gpu-architecture=compute_{capability}"),
        };
        // Sources say where to fuse; see machine.cuh.
        let options = [architecture.as_str(), "--std=c++17", "--fmad=false"];
        // SAFETY: the program was just made and is destroyed when it is dropped.
        let compiled = unsafe { result::compile_program(program.0, &options) };
        compiled.map_err(|_| failed(module.file, program.log()))?;
        match target {
            Target::Cubin(_) => program.cubin(),
            // SAFETY: as above.
            Target::Ptx(_) => unsafe { result::get_ptx(program.0) }
                .map(|ptx| ptx.into_iter().map(|c| c as u8).collect())
                .map_err(|error| failed(module.file, error)),
        }
    }
}

/// A program of the library, destroyed on drop.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(module: &Module) -> Result<Self, KernelError> {
        let held = |text: &str| CString::new(text).map_err(|error| failed(module.file, error));
        let (source, name) = (held(module.source)?, held(module.file)?);
        let headers = HEADERS.map(|(name, text)| (held(name), held(text)));
        let mut names = Vec::new();
        let mut texts = Vec::new();
        for (name, text) in headers {
            names.push(name?);
            texts.push(text?);
        }
        let addresses = |held: &[CString]| -> Vec<*const c_char> { held.iter().map(|text| text.as_ptr()).collect() };
        let (names, texts) = (addresses(&names), addresses(&texts));
        let mut program = std::ptr::null_mut();
        // SAFETY: all strings live until the call returns; the library copies them.
        let made = unsafe {
            let count = HEADERS.len() as i32;
            sys::nvrtcCreateProgram(&mut program, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        made.result().map_err(|error| failed(module.file, error))?;
        Ok(Self(program))
    }

    fn log(&self) -> String {
        // SAFETY: the program is valid until it is dropped.
        match unsafe { result::get_program_log(self.0) } {
            Ok(log) => String::from_utf8_lossy(&log.into_iter().map(|c| c as u8).collect::<Vec<_>>()).into_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn cubin(&self) -> Result<Vec<u8>, KernelError> {
        let mut size = 0;
        // SAFETY: the program is valid; the size is asked for before the bytes, which fit the vector.
        let bytes = unsafe {
            let asked = sys::nvrtcGetCUBINSize(self.0, &mut size).result();
            let mut bytes = vec![0u8; size];
            asked.and_then(|()| sys::nvrtcGetCUBIN(self.0, bytes.as_mut_ptr().cast()).result()).map(|()| bytes)
        };
        bytes.map_err(|error| failed("cubin", error))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nobody else holds it.
        let destroyed = unsafe { result::destroy_program(self.0) };
        debug_assert!(destroyed.is_ok());
    }
}

fn failed(what: impl ToString, reason: impl ToString) -> KernelError {
    KernelError::Gpu { what: what.to_string(), reason: reason.to_string() }
}

/// Loads a library for good, so that the loader finds it when it is asked for by its name alone.
#[cfg(target_os = "linux")]
fn preload(path: &Path) -> Result<(), KernelError> {
    use std::os::unix::ffi::OsStrExt;
    let text = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(path.display(), error))?;
    // SAFETY: loads a library that the operator names; its initialisers are NVIDIA's.
    let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlopen failed on this thread, so there is a message.
    let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
    Err(failed(path.display(), reason.to_string_lossy()))
}

#[cfg(not(target_os = "linux"))]
fn preload(path: &Path) -> Result<(), KernelError> {
    Err(failed(path.display(), "libraries are named by path on Linux only"))
}
