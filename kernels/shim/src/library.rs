//! The kernels' sources, compiled by the C++ compiler over the shim, and loaded. Where there is no compiler the tests say
//! that they do not apply; `.ci/run` demands one.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mstar_kernels::gpu::{HEADERS, Launch, MODULES};

/// The shim's entry point; see shim.cpp.
type LaunchFn = unsafe extern "C" fn(
    name: *const c_char,
    kinds: *const c_char,
    arguments: *mut *mut c_void,
    grid: *const u32,
    threads: u32,
    schedule: u32,
    reason: *mut c_char,
    reason_bytes: usize,
) -> c_int;

/// The loaded library.
#[derive(Debug)]
pub struct Library {
    launch: LaunchFn,
}

/// No contraction, as NVRTC is told; kernels that nothing registers are errors.
const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Werror=unused-function",
    "-U_FORTIFY_SOURCE", // it takes the fibers' jumps for damage
];

/// Kernels that are wrong on purpose.
const BROKEN: (&str, &[&str]) =
    ("broken.cu", &["lacks_a_barrier", "barrier_of_some", "shuffle_of_some", "writes_beyond", "shares_too_little"]);

/// C++ compilers, the first that starts is taken.
const COMPILERS: [&str; 3] = ["g++", "c++", "clang++"];

/// Returns the library, compiled when it is asked for first; nothing where there is no compiler.
pub fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Result<Option<Library>, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| {
        let starts = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success());
        let compiler = COMPILERS.into_iter().find(starts);
        if compiler.is_none() {
            // Not by a macro: the harness would keep it to itself.
            let told = "CUDA kernels on the host: NOT APPLIED: no C++ compiler starts (Debian: apt-get install g++)";
            writeln!(std::io::stderr(), "{told}").expect("somebody reads what tests say");
        }
        // Each test that asks is told; none tries again.
        compiler.map(|compiler| compiled(compiler).map(|path| Library::load(&path))).transpose()
    });
    found.as_ref().expect("the kernels compile").as_ref()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda")
}

/// Where it is compiled to: beside the folder of the program that runs, which cargo made.
fn builds() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it lies");
    program.ancestors().nth(2).expect("programs lie in folders of cargo's").join("cuda-shim")
}

/// Compiles, unless the same sources were compiled before; returns the library's path.
fn compiled(compiler: &str) -> Result<PathBuf, String> {
    let shim = sources().join("shim/shim.cpp");
    let broken = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(BROKEN.0);
    let mut units: Vec<(String, String)> = MODULES.iter().map(|m| unit(m.file, m.kernels)).collect();
    units.push(unit(&broken.display().to_string(), BROKEN.1));
    let read = |path: &Path| fs::read_to_string(path).expect("the sources are there");
    let mut hasher = DefaultHasher::new();
    (compiler, &units, MODULES.map(|m| m.source), HEADERS, FLAGS, read(&shim), read(&broken)).hash(&mut hasher);
    ["shim/shim.hpp", "shim/entry.hpp"].map(|file| read(&sources().join(file))).hash(&mut hasher);
    let folder = builds().join(format!("{:016x}", hasher.finish()));
    let library = folder.join("libshim.so");
    if !library.exists() {
        let work = folder.with_extension(std::process::id().to_string());
        compile(compiler, &work, &units, &shim)?;
        // Another test process may have been faster.
        if fs::rename(&work, &folder).is_err() {
            assert!(library.exists(), "{} cannot be made", folder.display());
            fs::remove_dir_all(&work).expect("our own folder");
        }
    }
    Ok(library)
}

/// A translation unit that registers a source's kernels: its name and text.
fn unit(source: &str, kernels: &[&str]) -> (String, String) {
    let entries: String = kernels.iter().map(|name| format!("SHIM_ENTRY({name})\n")).collect();
    let stem = Path::new(source).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    (format!("{stem}.cpp"), format!("#include \"{source}\"\n#include \"shim/entry.hpp\"\n{entries}"))
}

fn compile(compiler: &str, folder: &Path, units: &[(String, String)], shim: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).expect("the target folder can be written");
    let mut command = Command::new(compiler);
    // A fused multiply-add gives the same bits by an instruction as by a function, but sooner.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        command.arg("-mfma");
    }
    command.args(FLAGS).arg("-I").arg(sources()).arg("-o").arg(folder.join("libshim.so")).arg(shim);
    for (name, text) in units {
        fs::write(folder.join(name), text).expect("the target folder can be written");
        command.arg(folder.join(name));
    }
    let done = command.output().expect("the compiler just started");
    if done.status.success() {
        return Ok(());
    }
    fs::remove_dir_all(folder).expect("our own folder");
    Err(format!("{compiler} refuses the kernels:\n{}", String::from_utf8_lossy(&done.stderr)))
}

// --- impl Library ---

impl Library {
    fn load(path: &Path) -> Self {
        let text = CString::new(path.display().to_string()).expect("a path");
        // SAFETY: our own library, compiled above.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: dlopen failed, so there is a message.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            panic!("{}: {}", path.display(), reason.to_string_lossy());
        }
        // SAFETY: the library is loaded for good.
        let symbol = unsafe { libc::dlsym(handle, c"shim_launch".as_ptr()) };
        assert!(!symbol.is_null(), "the shim has its entry point");
        // SAFETY: shim.cpp defines it with this signature.
        let launch = unsafe { std::mem::transmute::<*mut c_void, LaunchFn>(symbol) };
        Self { launch }
    }

    /// Runs a kernel on this thread; `schedule` orders its threads and blocks.
    ///
    /// # Safety
    /// Pointers lead to host memory that holds what the kernel reads and writes.
    pub unsafe fn launch(&self, launch: &Launch<'_>, schedule: u32) -> Result<(), String> {
        let name = CString::new(launch.kernel).map_err(|error| error.to_string())?;
        let kinds: String = launch.args.iter().map(|arg| arg.kind()).collect();
        let kinds = CString::new(kinds).map_err(|error| error.to_string())?;
        let mut slots: Vec<u64> = launch.args.iter().map(|arg| u64::from_ne_bytes(arg.bytes())).collect();
        let mut places: Vec<*mut c_void> = slots.iter_mut().map(|slot| std::ptr::from_mut(slot).cast()).collect();
        let mut reason = [0u8; 256];
        // SAFETY: all buffers live until the call returns; memory as the caller promises.
        let outcome = unsafe {
            (self.launch)(
                name.as_ptr(),
                kinds.as_ptr(),
                places.as_mut_ptr(),
                launch.grid.as_ptr(),
                launch.threads,
                schedule,
                reason.as_mut_ptr().cast(),
                reason.len(),
            )
        };
        if outcome == 0 {
            return Ok(());
        }
        Err(CStr::from_bytes_until_nul(&reason).map_or_else(|e| e.to_string(), |r| r.to_string_lossy().into_owned()))
    }
}
