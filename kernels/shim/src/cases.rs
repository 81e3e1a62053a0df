//! What is computed on the CPU and on a device and must agree: shared by the shim's tests and by `gpu_check`.

use mstar_kernels::{Cx, KernelError, Shape, Tensor};

pub mod attention;
mod layers;
mod rowwise;
mod whole;

/// Numbers, or why there are none.
pub type Numbers = Result<Vec<f32>, KernelError>;

/// What a computation of rows does, in a context.
pub type OfRows = dyn Fn(&Cx, &Tensor) -> Result<Tensor, KernelError>;

/// One computation; run in any context it gives the same numbers to a tolerance.
pub struct Case {
    /// What is computed, and with which extents.
    pub name: String,
    /// How far from the CPU's a number may be, absolutely.
    pub tolerance: f32,
    /// Moves inputs to the context, computes, and reads back.
    pub run: Box<dyn Fn(&Cx) -> Numbers>,
}

/// A computation of rows that must not see their batch.
pub struct RowCase {
    /// What is computed.
    pub name: &'static str,
    /// The length of a row.
    pub width: usize,
    /// Computes rows of that length, in the context.
    pub run: Box<OfRows>,
}

/// Returns all computations.
pub fn cases() -> Vec<Case> {
    [rowwise::cases(), whole::cases(), layers::cases(), attention::cases()].into_iter().flatten().collect()
}

/// Returns all computations of rows.
pub fn row_cases() -> Vec<RowCase> {
    [rowwise::row_cases(), layers::row_cases()].into_iter().flatten().collect()
}

fn case(name: String, tolerance: f32, run: impl Fn(&Cx) -> Numbers + 'static) -> Case {
    Case { name, tolerance, run: Box::new(run) }
}

/// Numbers in -1..1 that depend on the seed alone.
pub fn random(seed: u64, shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    Tensor::from_f32((0..shape.len()).map(next).collect(), shape).expect("the shape fits")
}

/// Reads a tensor back.
fn numbers(tensor: &Tensor) -> Numbers {
    Ok(tensor.to_host()?.to_f32()?.f32s()?.to_vec())
}

/// Compares what two contexts computed; returns the greatest difference.
pub fn difference(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len(), "as many numbers");
    let gaps =
        got.iter().zip(want).map(|(g, w)| if g == w || (g.is_nan() && w.is_nan()) { 0.0 } else { (g - w).abs() });
    gaps.fold(0.0, |most, gap| if gap <= most { most } else { gap })
}
