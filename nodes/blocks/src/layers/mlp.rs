//! The position-wise halves of transformer layers.

use mstar_kernels::ops::{self, Activation, Epilogue, Input, PackedLinear};
use mstar_kernels::{Cx, KernelError, Tensor};

/// down(silu(gate x) * up x).
#[derive(Clone, Debug)]
pub struct GatedMlp {
    /// What opens and closes, and what passes, in one, in this order.
    pub gate_up: PackedLinear,
    /// Back to the width outside.
    pub down: PackedLinear,
}

/// down(activation(up x)).
#[derive(Clone, Debug)]
pub struct Mlp {
    /// To the width inside.
    pub up: PackedLinear,
    /// Between the two.
    pub activation: Activation,
    /// Back to the width outside.
    pub down: PackedLinear,
}

// --- impl GatedMlp ---

impl GatedMlp {
    /// Returns `residual` plus the layer's output for `x`.
    pub fn forward(&self, cx: &Cx, x: Input<'_>, residual: &Tensor) -> Result<Tensor, KernelError> {
        let inner = ops::linear_of(cx, x, &self.gate_up, Epilogue::default())?;
        let residual = Epilogue { residual: Some(residual), ..Epilogue::default() };
        ops::linear_of(cx, Input::SiluMulHalves(&inner), &self.down, residual)
    }
}

// --- impl Mlp ---

impl Mlp {
    /// Returns `residual` plus the layer's output for `x`.
    pub fn forward(&self, cx: &Cx, x: Input<'_>, residual: &Tensor) -> Result<Tensor, KernelError> {
        let opened = Epilogue { activation: self.activation, ..Epilogue::default() };
        let inner = ops::linear_of(cx, x, &self.up, opened)?;
        ops::linear_with(cx, &inner, &self.down, Epilogue { residual: Some(residual), ..Epilogue::default() })
    }
}
