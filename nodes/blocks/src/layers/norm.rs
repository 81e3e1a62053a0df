//! Norms with their weights.

use mstar_kernels::ops::{self, Gain, Input};
use mstar_kernels::{Cx, KernelError, Tensor};

/// x / rms(x), times a weight.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// One factor per element.
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f32,
    /// How the weight counts.
    pub gain: Gain,
}

/// (x - mean) / deviation, times a weight, plus a bias.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// One factor per element.
    pub weight: Tensor,
    /// One summand per element.
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f32,
}

// --- impl RmsNorm ---

impl RmsNorm {
    /// Normalises every row.
    pub fn forward(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        ops::rms_norm(cx, x, &self.weight, self.eps, self.gain)
    }

    /// Returns the normalised rows for the layer that follows, which makes them on the way.
    pub fn of<'a>(&'a self, x: &'a Tensor) -> Input<'a> {
        Input::RmsNorm { x, weight: &self.weight, eps: self.eps, gain: self.gain }
    }
}

// --- impl LayerNorm ---

impl LayerNorm {
    /// Normalises every row.
    pub fn forward(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
        ops::layer_norm(cx, x, Some(&self.weight), Some(&self.bias), self.eps)
    }

    /// Returns the normalised rows for the layer that follows, which makes them on the way.
    pub fn of<'a>(&'a self, x: &'a Tensor) -> Input<'a> {
        Input::LayerNorm { x, weight: &self.weight, bias: &self.bias, eps: self.eps }
    }
}
