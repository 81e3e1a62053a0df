//! The position-wise halves of transformer layers.

use mstar_kernels::ops::{self, Activation, Epilogue, PackedLinear};
use mstar_kernels::{Cx, KernelError, Tensor};

/// down(silu(gate x) * up x).
#[derive(Clone, Debug)]
pub struct GatedMlp {
    /// What opens and closes.
    pub gate: PackedLinear,
    /// What passes.
    pub up: PackedLinear,
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
    pub fn forward(&self, cx: &Cx, x: &Tensor, residual: &Tensor) -> Result<Tensor, KernelError> {
        let (gate, up) = (ops::linear(cx, x, &self.gate)?, ops::linear(cx, x, &self.up)?);
        let inner = ops::silu_mul(cx, &gate, &up)?;
        ops::linear_with(cx, &inner, &self.down, Epilogue { residual: Some(residual), ..Epilogue::default() })
    }
}

// --- impl Mlp ---

impl Mlp {
    /// Returns `residual` plus the layer's output for `x`.
    pub fn forward(&self, cx: &Cx, x: &Tensor, residual: &Tensor) -> Result<Tensor, KernelError> {
        let opened = Epilogue { activation: self.activation, ..Epilogue::default() };
        let inner = ops::linear_with(cx, x, &self.up, opened)?;
        ops::linear_with(cx, &inner, &self.down, Epilogue { residual: Some(residual), ..Epilogue::default() })
    }
}
