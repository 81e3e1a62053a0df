//! Every kernel compiles for a device: to PTX, and to a cubin for sm_90. Needs NVRTC, but no GPU.
//!
//! `MSTAR_NVRTC` names the library, and then the test fails without it; `.ci/run` fetches it and says so. Elsewhere the
//! loader's own is taken, and where there is none the test says that it does not apply.

use std::io::Write as _;
use std::path::PathBuf;

use mstar_kernels::gpu::{MODULES, Module, Nvrtc, Target};

/// The machine number of cubins in the ELF header.
const EM_CUDA: [u8; 2] = [190, 0];

/// The compiler, or nothing where nobody asked for it and there is none.
fn nvrtc() -> Option<Nvrtc> {
    #[expect(clippy::disallowed_methods, reason = "a test's own switch, not a setting of the product")]
    let demanded = std::env::var("MSTAR_NVRTC").ok().map(PathBuf::from);
    match Nvrtc::find(demanded.as_deref()) {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            assert!(demanded.is_none(), "MSTAR_NVRTC: {error}");
            let how = "MSTAR_NVRTC=$(kernels/cuda/fetch-nvrtc target/nvrtc) cargo test -p mstar-kernels --test nvrtc";
            // Not by a macro: the harness would keep it to itself.
            let told = writeln!(std::io::stderr(), "nvrtc: NOT APPLIED: {error}. To run it: {how}");
            told.expect("somebody reads what tests say");
            None
        }
    }
}

#[test]
fn every_kernel_compiles_to_ptx_and_to_a_cubin_for_sm_90() {
    let Some(nvrtc) = nvrtc() else { return };
    for module in &MODULES {
        let cubin = nvrtc.compile(module, Target::Cubin(90)).unwrap();
        assert_eq!((&cubin[..4], &cubin[18..20]), (&b"\x7fELF"[..], &EM_CUDA[..]), "{}", module.file);
        let ptx = String::from_utf8(nvrtc.compile(module, Target::Ptx(90)).unwrap()).unwrap();
        assert!(ptx.contains(".target sm_90"), "{}", module.file);
        for kernel in module.kernels {
            assert!(ptx.contains(&format!(".entry {kernel}(")), "{kernel}");
            let section = format!(".text.{kernel}\0");
            assert!(cubin.windows(section.len()).any(|part| part == section.as_bytes()), "{kernel}");
        }
        // What is fused stands in the source: contraction is off, and so are approximations.
        assert!(!ptx.contains(".approx"), "{} computes approximately", module.file);
    }
    let wrong = Module { file: "wrong.cu", source: "KERNEL(1) wrong() { nothing; }", kernels: &["wrong"] };
    let refused = nvrtc.compile(&wrong, Target::Ptx(90)).unwrap_err().to_string();
    assert!(refused.starts_with("cuda: wrong.cu: wrong.cu(1): error"), "{refused}");
}
