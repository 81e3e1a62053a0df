//! What an operation refuses, with enough in it to find the call that was wrong.

use crate::{DType, Device, Shape, Tier};

/// Why an operation or a tensor could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The shapes do not fit the operation.
    #[error("{op}: {rule}, got {}", list(.shapes))]
    Shape {
        /// The operation that refused.
        op: &'static str,
        /// What it asks of its shapes.
        rule: &'static str,
        /// The shapes it was given.
        shapes: Vec<Shape>,
    },
    /// An element type the operation does not take.
    #[error("{op}: wants {want:?}, got {got:?}")]
    DType {
        /// The operation that refused.
        op: &'static str,
        /// The type it wants.
        want: DType,
        /// The type it was given.
        got: DType,
    },
    /// A number outside of what is allowed at its place.
    #[error("{op}: {what} is {value}, limit {limit}")]
    Range {
        /// The operation that refused.
        op: &'static str,
        /// The quantity that is wrong.
        what: &'static str,
        /// What it is.
        value: usize,
        /// The bound it breaks.
        limit: usize,
    },
    /// The operation has no kernel for this device.
    #[error("{op}: no kernel for {device:?}")]
    NoKernel {
        /// The operation that was asked for.
        op: &'static str,
        /// The device it was asked for on.
        device: Device,
    },
    /// A tensor that does not lie where the operation runs.
    #[error("{op}: runs on {want:?}, a tensor lies on {got:?}")]
    Elsewhere {
        /// The operation that refused.
        op: &'static str,
        /// Where it runs.
        want: Device,
        /// Where the tensor lies.
        got: Device,
    },
    /// The device, its driver or its compiler refused.
    #[error("cuda: {what}: {reason}")]
    Gpu {
        /// What was asked of it.
        what: String,
        /// What it said.
        reason: String,
    },
    /// This machine lacks the instructions of a tier.
    #[error("this machine lacks the instructions of tier {tier:?}")]
    NoTier {
        /// The tier that was asked for.
        tier: Tier,
    },
    /// The allocator gave nothing.
    #[error("out of memory: {bytes} bytes")]
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
    /// A pool thread could not be started.
    #[error("cannot start a pool thread")]
    Thread(#[source] std::io::Error),
}

impl KernelError {
    pub(crate) fn shape(op: &'static str, rule: &'static str, shapes: &[Shape]) -> Self {
        Self::Shape { op, rule, shapes: shapes.to_vec() }
    }
}

/// Refuses with [`KernelError::Shape`] unless `holds`.
pub(crate) fn need(holds: bool, op: &'static str, rule: &'static str, shapes: &[Shape]) -> Result<(), KernelError> {
    if holds { Ok(()) } else { Err(KernelError::shape(op, rule, shapes)) }
}

/// Refuses with [`KernelError::Range`] unless `value < limit`.
pub(crate) fn below(op: &'static str, what: &'static str, value: usize, limit: usize) -> Result<(), KernelError> {
    if value < limit { Ok(()) } else { Err(KernelError::Range { op, what, value, limit }) }
}

fn list(shapes: &[Shape]) -> String {
    let texts: Vec<String> = shapes.iter().map(Shape::to_string).collect();
    texts.join(" and ")
}
