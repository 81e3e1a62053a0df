//! How a model's arithmetic is fast: a thin tensor layer and the operations on it.
//!
//! A [`Tensor`] is a contiguous, row-major view of shared bytes. A [`Cx`] says where operations run: the device, the
//! instruction [`Tier`] (AVX-512, AVX2 or portable, found at run time) and the thread [`Pool`]. Operations are the
//! functions of [`ops`]; each dispatches on the device and says [`KernelError::NoKernel`] where it has none.
//!
//! **Rows are invariant.** A row of a result has the same bits whatever else is in the batch, wherever in it the row
//! stands, on any number of threads, and whether its tokens came by prefill, in chunks or one by one: every reduction
//! runs in an order that only its own row decides. Recovery by recomputing rests on it. The bits are those of a
//! (precision, tier); only the Fourier transforms choose their instructions by themselves.
//!
//! The crate knows no file formats, no models, no requests and no async runtime. `unsafe` code stays within it.
//!
//! ```
//! use mstar_kernels::{Cx, Precision, Tensor, ops};
//!
//! let cx = Cx::with_threads(2)?;
//! let weight = Tensor::from_f32(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
//! let packed = ops::pack_linear(&weight, None, Precision::F32)?;
//! let x = Tensor::from_f32(vec![1.0, 0.0, -1.0], [1, 3])?;
//! assert_eq!(ops::linear(&cx, &x, &packed)?.f32s()?, [-2.0, -2.0]);
//! # Ok::<(), mstar_kernels::KernelError>(())
//! ```
#![allow(unsafe_code)]

mod buffer;
#[cfg(test)]
mod check;
mod cx;
mod error;
pub mod gpu;
mod isa;
mod maths;
pub mod ops;
mod pool;
mod scratch;
mod shape;
mod tensor;

pub use cx::{Cx, Device, Tier};
pub use error::KernelError;
pub use half::bf16;
pub use ops::{Epilogue, KvPages, NoiseKey, PackedLinear, Precision};
pub use pool::{Affinity, Pool};
pub use shape::{MAX_RANK, Shape};
pub use tensor::{DType, Element, Tensor};
