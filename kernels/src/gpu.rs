//! The CUDA side: finding devices, and running the operations on them.
//!
//! A [`Gpu`] owns one stream of a device and the memory of the tensors that lie there; [`crate::Cx::with_gpu`] makes every
//! operation run on it. Below it stands a [`Driver`], which allocates, copies and launches by kernel name: CUDA in
//! [`Gpu::open`], which loads the driver library and NVRTC at run time, so the same binary starts without either; and in
//! the tests a shim that runs the same kernel sources on the host.
//!
//! **Never run on hardware.** What is checked, without a GPU: every kernel's results and bits through the shim, that NVRTC
//! compiles every kernel, what is passed to each launch, and capture as the shim does it. What is not: the calls into the
//! CUDA driver and into cuBLASLt, and all speed. `scenarios/gpu-check` checks that where there is a device.

mod capture;
mod cuda;
mod driver;
mod handle;
mod memory;
mod nvrtc;
pub(crate) mod ops;
mod probe;
mod products;
mod sources;
mod staged;

pub use capture::{Captures, Replay};
pub use driver::{Arg, Driver, Launch, Product};
pub use handle::{Gpu, GpuSettings};
pub(crate) use memory::Memory;
pub use nvrtc::{Nvrtc, Target};
pub use probe::{GpuDescription, NoCuda, probe};
pub use sources::{HEADERS, MODULES, Module};
