//! Matrix products by cuBLASLt. Never run on hardware.
//!
//! A row must not depend on its batch, so the library is held to one algorithm per (inputs, outputs, type): the first that
//! it proposes for [`Products::ROWS`] rows without a workspace and without any reduction across blocks (no split-K). Rows
//! are padded to a multiple of that, so every call is made of the same tiles.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::{result, sys};
use cudarc::driver::sys::CUstream;

use super::cuda::failed;
use super::driver::Product;
use crate::KernelError;

/// The library and the algorithms it was held to.
#[derive(Debug)]
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    chosen: Mutex<BTreeMap<Shape, Option<sys::cublasLtMatmulAlgo_t>>>,
}

/// What an algorithm is chosen for: inputs, outputs, halves.
type Shape = (usize, usize, bool);

// SAFETY: the library's handle may be used by any thread.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

/// The library's number for a transposed operand.
const TRANSPOSED: u32 = 1;

/// A product's descriptors, destroyed on drop. The library is column-major: y^T = W x^T, with W^T as it lies.
struct Plan {
    operation: sys::cublasLtMatmulDesc_t,
    weight: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    y: sys::cublasLtMatrixLayout_t,
}

// --- impl Products ---

impl Products {
    /// Rows come in multiples of this.
    pub(super) const ROWS: usize = 128;
    /// What addresses are multiples of, in bytes: a view may begin at any row of a tensor, and rows are whole runs of
    /// eight numbers.
    const ALIGNED: u64 = 16;

    /// Finds the library; the context must be current. `None` where it is not installed.
    pub(super) fn find() -> Result<Option<Self>, KernelError> {
        // SAFETY: asks the loader whether the library is there.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let handle = result::create_handle().map_err(told)?;
        Ok(Some(Self { handle, chosen: Mutex::default() }))
    }

    /// Computes a product; says `false` where the library has no algorithm for its shape.
    ///
    /// # Safety
    /// The memory holds what the product reads and writes, and the stream's context is current.
    pub(super) unsafe fn run(&self, product: &Product, stream: CUstream) -> Result<bool, KernelError> {
        let plan = Plan::new(product, product.rows)?;
        let Some(algorithm) = self.algorithm(product)? else { return Ok(false) };
        let (one, zero) = (1.0f32, 0.0f32);
        let at = |address: u64| address as *const c_void;
        // SAFETY: descriptors live until the call returns; memory as the caller promises; no workspace is asked for.
        let done = unsafe {
            result::matmul(
                self.handle,
                plan.operation,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                at(product.weight),
                plan.weight,
                at(product.x),
                plan.x,
                at(product.y),
                plan.y,
                product.y as *mut c_void,
                plan.y,
                &algorithm,
                std::ptr::null_mut(),
                0,
                stream.cast(),
            )
        };
        done.map_err(told).map(|()| true)
    }

    /// Returns the algorithm of the product's shape, chosen when it is asked for first.
    fn algorithm(&self, product: &Product) -> Result<Option<sys::cublasLtMatmulAlgo_t>, KernelError> {
        let shape = (product.inputs, product.outputs, product.halves);
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = chosen.get(&shape) {
            return Ok(*known);
        }
        let found = self.propose(product)?;
        chosen.insert(shape, found);
        Ok(found)
    }

    fn propose(&self, product: &Product) -> Result<Option<sys::cublasLtMatmulAlgo_t>, KernelError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let plan = Plan::new(product, Self::ROWS)?;
        let preference = result::create_matmul_pref().map_err(told)?;
        let no_reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32;
        let wish = |attribute: Attribute, value: u64, bytes: usize| {
            // SAFETY: the preference is valid; the attribute is a number of so many bytes, little-endian as all machines
            // with CUDA are.
            unsafe { result::set_matmul_pref_attribute(preference, attribute, (&raw const value).cast(), bytes) }
        };
        let proposed = wish(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, no_reduction.into(), 4)
            .and_then(|()| wish(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0, 8))
            .and_then(|()| wish(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Self::ALIGNED, 4))
            .and_then(|()| wish(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Self::ALIGNED, 4))
            .and_then(|()| wish(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Self::ALIGNED, 4))
            .and_then(|()| wish(Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Self::ALIGNED, 4))
            .and_then(|()| {
                let (a, b, y) = (plan.weight, plan.x, plan.y);
                // SAFETY: the handle, the descriptors and the preference are valid.
                unsafe { result::get_matmul_algo_heuristic(self.handle, plan.operation, a, b, y, y, preference) }
            });
        // SAFETY: made above and not used again.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        match proposed {
            Ok(found) => Ok(Some(found.algo)),
            Err(error) if error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => Ok(None),
            Err(error) => Err(told(error)),
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: made by `find`; the driver is done with it.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

// --- impl Plan ---

impl Plan {
    fn new(product: &Product, rows: usize) -> Result<Self, KernelError> {
        use sys::cublasComputeType_t as Compute;
        use sys::cudaDataType as Type;
        let (inputs, outputs) = (product.inputs as u64, product.outputs as u64);
        // f32 products are exact ones: no shortened mantissas.
        let (given, compute) = match product.halves {
            true => (Type::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            false => (Type::CUDA_R_32F, Compute::CUBLAS_COMPUTE_32F_PEDANTIC),
        };
        let layout = |kind, height: u64, width: u64| {
            result::create_matrix_layout(kind, height, width, height as i64).map_err(told)
        };
        let (weight, x) = (layout(given, inputs, outputs)?, layout(given, inputs, rows as u64)?);
        let y = layout(Type::CUDA_R_32F, outputs, rows as u64)?;
        let operation = result::create_matmul_desc(compute, Type::CUDA_R_32F).map_err(told)?;
        let plan = Self { operation, weight, x, y };
        let turned = TRANSPOSED;
        let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        // SAFETY: the descriptor is valid; the attribute is a 32-bit number.
        unsafe { result::set_matmul_desc_attribute(operation, attribute, (&raw const turned).cast(), 4) }
            .map_err(told)?;
        Ok(plan)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `new` and not used again.
        unsafe {
            let _ = result::destroy_matmul_desc(self.operation);
            for layout in [self.weight, self.x, self.y] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

fn told(error: result::CublasError) -> KernelError {
    failed("cublaslt", error)
}
