//! What a layer's rows are made of. They are made tile by tile while they are packed, and never stored.

use std::ops::Range;

use super::rows::{Plain, RowSource};
use super::{Epilogue, PackedLinear, run};
use crate::cx::{Cpu, RowKernel};
use crate::error::need;
use crate::ops::activation::SiluMulHalves;
use crate::ops::norm::{self, Gain};
use crate::ops::{layer_norm, rms_norm, silu_mul_halves};
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// The rows that a linear layer takes.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The tensor's own.
    Rows(&'a Tensor),
    /// Those of [`rms_norm`].
    RmsNorm {
        /// What is normalised, `[.., width]`.
        x: &'a Tensor,
        /// As long as a row.
        weight: &'a Tensor,
        /// Added to the mean square.
        eps: f32,
        /// How the weight counts.
        gain: Gain,
    },
    /// Those of [`layer_norm`].
    LayerNorm {
        /// What is normalised, `[.., width]`.
        x: &'a Tensor,
        /// As long as a row.
        weight: &'a Tensor,
        /// As long as a row.
        bias: &'a Tensor,
        /// Added to the variance.
        eps: f32,
    },
    /// Those of [`silu_mul_halves`].
    SiluMulHalves(&'a Tensor),
}

/// Rows that a kernel computes.
struct Made<'a, K> {
    cpu: Cpu<'a>,
    kernel: K,
    width: usize,
}

// --- impl Input ---

impl Input<'_> {
    /// Returns the rows as a tensor: the same bits that a layer packs.
    pub fn rows(&self, cx: &Cx) -> Result<Tensor, KernelError> {
        match *self {
            Self::Rows(x) => Ok(x.clone()),
            Self::RmsNorm { x, weight, eps, gain } => rms_norm(cx, x, weight, eps, gain),
            Self::LayerNorm { x, weight, bias, eps } => layer_norm(cx, x, Some(weight), Some(bias), eps),
            Self::SiluMulHalves(x) => silu_mul_halves(cx, x),
        }
    }

    /// The shape of the rows.
    fn shape(&self) -> Shape {
        match self {
            Self::Rows(x) | Self::RmsNorm { x, .. } | Self::LayerNorm { x, .. } => x.shape(),
            Self::SiluMulHalves(x) => x.shape().with_width(x.shape().width() / 2),
        }
    }
}

// --- impl Made ---

impl<K: RowKernel> RowSource for Made<'_, K> {
    fn rows<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> &'s [f32] {
        scratch.resize(rows.len() * self.width, 0.0);
        self.cpu.some_rows(&self.kernel, rows.start, self.width, scratch);
        scratch
    }
}

/// activation(rows W^T + bias) + residual, for rows that are made on the way; the same bits as without.
pub fn linear_of(
    cx: &Cx,
    input: Input<'_>,
    weight: &PackedLinear,
    epilogue: Epilogue<'_>,
) -> Result<Tensor, KernelError> {
    let (inputs, outputs, x) = (weight.inputs, weight.outputs, input.shape());
    let fits = x.rank() > 0 && x.width() == inputs;
    need(fits, "linear", "the input's rows are as long as the weight's", &[x, Shape::from([outputs, inputs])])?;
    let shape = x.with_width(outputs);
    if let Some(residual) = epilogue.residual {
        need(residual.shape() == shape, "linear", "the residual is of the output's shape", &[residual.shape(), shape])?;
    }
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::linear(gpu, &input.rows(cx)?, weight.on_gpu()?, epilogue.on_gpu());
    }
    let cpu = cx.cpu_for("linear")?;
    match input {
        Input::Rows(x) => run(cpu, &Plain { x: x.f32s()?, width: inputs }, weight, epilogue, shape),
        Input::RmsNorm { x, weight: gains, eps, gain } => {
            let kernel = norm::RmsNorm::new(x, gains, eps, gain)?;
            run(cpu, &Made { cpu, kernel, width: inputs }, weight, epilogue, shape)
        }
        Input::LayerNorm { x, weight: gains, bias, eps } => {
            let kernel = norm::LayerNorm::new(x, Some(gains), Some(bias), eps)?;
            run(cpu, &Made { cpu, kernel, width: inputs }, weight, epilogue, shape)
        }
        Input::SiluMulHalves(x) => {
            let kernel = SiluMulHalves::new(x)?;
            run(cpu, &Made { cpu, kernel, width: inputs }, weight, epilogue, shape)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{on_every_tier, random, rows_do_not_see_their_batch, same_bits};
    use crate::ops::{Activation, Precision, linear_with, pack_linear};

    const FORMS: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::Q8, Precision::Q4];

    #[test]
    fn rows_made_on_the_way_have_the_bits_of_rows_made_before() {
        let (gains, bias, weight) = (random(1, [96]), random(2, [96]), random(3, [40, 96]));
        for rows in [1, 2, 7, 50] {
            let (x, halves, residual) = (random(4, [rows, 96]), random(5, [rows, 192]), random(6, [rows, 40]));
            let inputs = [
                Input::Rows(&x),
                Input::RmsNorm { x: &x, weight: &gains, eps: 1e-5, gain: Gain::OnePlusWeight },
                Input::LayerNorm { x: &x, weight: &gains, bias: &bias, eps: 1e-5 },
                Input::SiluMulHalves(&halves),
            ];
            for precision in FORMS {
                let weight = pack_linear(&weight, None, precision).unwrap();
                let epilogue = Epilogue { activation: Activation::GeluErf, residual: Some(&residual) };
                on_every_tier(|cx| {
                    for input in inputs {
                        let before = linear_with(cx, &input.rows(cx).unwrap(), &weight, epilogue).unwrap();
                        let fused = linear_of(cx, input, &weight, epilogue).unwrap();
                        same_bits(fused.f32s().unwrap(), before.f32s().unwrap());
                    }
                });
            }
        }
    }

    #[test]
    fn made_rows_do_not_see_their_batch() {
        let (gains, weight) = (random(1, [64]), pack_linear(&random(3, [33, 64]), None, Precision::Q8).unwrap());
        on_every_tier(|cx| {
            rows_do_not_see_their_batch(64, |x| {
                let normed = Input::RmsNorm { x, weight: &gains, eps: 1e-5, gain: Gain::Weight };
                linear_of(cx, normed, &weight, Epilogue::default()).unwrap()
            });
        });
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let (weight, x, gains) = (random(1, [8, 16]), random(2, [3, 16]), random(3, [15]));
        let weight = pack_linear(&weight, None, Precision::F32).unwrap();
        let normed = Input::RmsNorm { x: &x, weight: &gains, eps: 1e-5, gain: Gain::Weight };
        assert!(linear_of(&cx, normed, &weight, Epilogue::default()).is_err());
        assert!(linear_of(&cx, Input::SiluMulHalves(&x), &weight, Epilogue::default()).is_err());
        let odd = random(4, [3, 33]);
        assert!(linear_of(&cx, Input::SiluMulHalves(&odd), &weight, Epilogue::default()).is_err());
    }
}
