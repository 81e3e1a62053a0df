//! What judges the CUDA kernels without a GPU: a driver that runs their sources on the host, and computations that every
//! device must agree on. For tests only; nothing that serves depends on it.
//!
//! The C++ compiler compiles `kernels/cuda/*.cu` over the shim in `kernels/cuda/shim`, where CUDA's threads are fibers. So
//! a [`mstar_kernels::gpu::Gpu`] on a [`HostDriver`] runs the same operations, with the same arguments, as on hardware.
//!
//! ```no_run
//! use mstar_kernels::{Cx, Tensor, ops};
//!
//! // Nothing where no C++ compiler starts.
//! if let Some(gpu) = mstar_shim::device() {
//!     let cx = Cx::with_threads(1).unwrap().with_gpu(gpu);
//!     let x = Tensor::from_f32(vec![-1.0, 2.0], [1, 2]).unwrap().on(&cx).unwrap();
//!     let y = ops::relu(&cx, &x).unwrap().to_host().unwrap();
//!     assert_eq!(y.f32s().unwrap(), [0.0, 2.0]);
//! }
//! ```

#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

pub mod cases;
mod host;
mod library;

pub use host::{HostDriver, device, device_with};
pub use library::{Library, library};
