//! Normalisation of rows.

use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Tensor, gpu};

/// What a norm's weight is multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The weight itself.
    Weight,
    /// One more than the weight (Gemma).
    OnePlusWeight,
}

/// x / sqrt(mean(x^2) + eps), times the gain.
pub fn rms_norm(cx: &Cx, x: &Tensor, weight: &Tensor, eps: f32, gain: Gain) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        fits("rms_norm", x, Some(weight))?;
        return gpu::ops::rms_norm(gpu, x, weight, eps, f32::from(gain as u8));
    }
    let cpu = cx.cpu_for("rms_norm")?;
    let kernel = RmsNorm::new(x, weight, eps, gain)?;
    Tensor::written(x.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

/// (x - mean) / sqrt(variance + eps), times the weight, plus the bias; without them when they are `None`.
pub fn layer_norm(
    cx: &Cx,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        fits("layer_norm", x, weight)?;
        fits("layer_norm", x, bias)?;
        return gpu::ops::layer_norm(gpu, x, weight, bias, eps);
    }
    let cpu = cx.cpu_for("layer_norm")?;
    let kernel = LayerNorm::new(x, weight, bias, eps)?;
    Tensor::written(x.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

fn fits(op: &'static str, x: &Tensor, vector: Option<&Tensor>) -> Result<usize, KernelError> {
    let width = x.shape().width();
    if let Some(vector) = vector {
        let fits = vector.shape().rank() == 1 && vector.len() == width;
        need(fits, op, "weight and bias are as long as a row", &[x.shape(), vector.shape()])?;
    }
    Ok(width)
}

/// [`rms_norm`], row by row.
pub(super) struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    width: usize,
    eps: f32,
    plus: f32,
}

// --- impl RmsNorm ---

impl<'a> RmsNorm<'a> {
    pub(super) fn new(x: &'a Tensor, weight: &'a Tensor, eps: f32, gain: Gain) -> Result<Self, KernelError> {
        let width = fits("rms_norm", x, Some(weight))?;
        Ok(Self { x: x.f32s()?, weight: weight.f32s()?, width, eps, plus: f32::from(gain as u8) })
    }
}

impl RowKernel for RmsNorm<'_> {
    const COST: usize = 2;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * self.width..][..self.width];
        let mut squares = isa.splat(0.0);
        for part in x.chunks(LANES) {
            let v = isa.load_part(part, 0.0);
            squares = isa.fma(v, v, squares);
        }
        let inverse = 1.0 / (isa.sum(squares) / self.width as f32 + self.eps).sqrt();
        let (inverse, plus) = (isa.splat(inverse), isa.splat(self.plus));
        for ((x, w), out) in x.chunks(LANES).zip(self.weight.chunks(LANES)).zip(out.chunks_mut(LANES)) {
            let gain = isa.add(plus, isa.load_part(w, 0.0));
            isa.store_part(isa.mul(isa.mul(isa.load_part(x, 0.0), inverse), gain), out);
        }
    }
}

/// [`layer_norm`], row by row.
pub(super) struct LayerNorm<'a> {
    x: &'a [f32],
    weight: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    width: usize,
    eps: f32,
}

// --- impl LayerNorm ---

impl<'a> LayerNorm<'a> {
    pub(super) fn new(
        x: &'a Tensor,
        weight: Option<&'a Tensor>,
        bias: Option<&'a Tensor>,
        eps: f32,
    ) -> Result<Self, KernelError> {
        let width = fits("layer_norm", x, weight)?;
        fits("layer_norm", x, bias)?;
        let (weight, bias) = (weight.map(Tensor::f32s).transpose()?, bias.map(Tensor::f32s).transpose()?);
        Ok(Self { x: x.f32s()?, weight, bias, width, eps })
    }
}

impl RowKernel for LayerNorm<'_> {
    const COST: usize = 3;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * self.width..][..self.width];
        let mut sum = isa.splat(0.0);
        for part in x.chunks(LANES) {
            sum = isa.add(sum, isa.load_part(part, 0.0));
        }
        let mean = isa.sum(sum) / self.width as f32;
        let (middle, mut squares) = (isa.splat(mean), isa.splat(0.0));
        for part in x.chunks(LANES) {
            // Filled up with the mean, so that the fill adds nothing.
            let v = isa.sub(isa.load_part(part, mean), middle);
            squares = isa.fma(v, v, squares);
        }
        let inverse = isa.splat(1.0 / (isa.sum(squares) / self.width as f32 + self.eps).sqrt());
        for (i, (x, out)) in x.chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
            let mut v = isa.mul(isa.sub(isa.load_part(x, 0.0), middle), inverse);
            if let Some(weight) = self.weight {
                v = isa.mul(v, isa.load_part(&weight[i * LANES..][..x.len()], 0.0));
            }
            if let Some(bias) = self.bias {
                v = isa.add(v, isa.load_part(&bias[i * LANES..][..x.len()], 0.0));
            }
            isa.store_part(v, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random, rows_do_not_see_their_batch, threads_do_not_show};

    fn reference(x: &Tensor, by: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f32> {
        let rows = x.f32s().unwrap().chunks(x.shape().width());
        let wide = |row: &[f32]| -> Vec<f64> { row.iter().map(|&v| f64::from(v)).collect() };
        rows.flat_map(|row| by(&wide(row))).map(|v| v as f32).collect()
    }

    #[test]
    fn rms_norm_follows_its_definition() {
        for width in [1, 15, 16, 64, 77] {
            let (x, w) = (random(1, [5, width]), random(2, [width]));
            let ws = w.f32s().unwrap();
            for (gain, plus) in [(Gain::Weight, 0.0), (Gain::OnePlusWeight, 1.0)] {
                let want = reference(&x, |row| {
                    let mean = row.iter().map(|v| v * v).sum::<f64>() / width as f64;
                    row.iter().zip(ws).map(|(v, w)| v / (mean + 1e-5).sqrt() * (plus + f64::from(*w))).collect()
                });
                on_every_tier(|cx| {
                    close(rms_norm(cx, &x, &w, 1e-5, gain).unwrap().f32s().unwrap(), &want, 2e-6);
                    rows_do_not_see_their_batch(width, |x| rms_norm(cx, x, &w, 1e-5, gain).unwrap());
                });
            }
        }
    }

    #[test]
    fn layer_norm_follows_its_definition() {
        for width in [2, 16, 31, 96] {
            let (x, w, b) = (random(1, [4, width]), random(2, [width]), random(3, [width]));
            let (ws, bs) = (w.f32s().unwrap(), b.f32s().unwrap());
            let normal = |row: &[f64]| -> Vec<f64> {
                let mean = row.iter().sum::<f64>() / width as f64;
                let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                row.iter().map(|v| (v - mean) / (var + 1e-5).sqrt()).collect()
            };
            let bare = reference(&x, normal);
            let whole = reference(&x, |row| {
                let lines = normal(row).into_iter().zip(ws).zip(bs);
                lines.map(|((v, w), b)| v * f64::from(*w) + f64::from(*b)).collect()
            });
            on_every_tier(|cx| {
                close(layer_norm(cx, &x, None, None, 1e-5).unwrap().f32s().unwrap(), &bare, 4e-6);
                close(layer_norm(cx, &x, Some(&w), Some(&b), 1e-5).unwrap().f32s().unwrap(), &whole, 4e-6);
                rows_do_not_see_their_batch(width, |x| layer_norm(cx, x, Some(&w), Some(&b), 1e-5).unwrap());
            });
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let x = random(1, [300, 200]);
        threads_do_not_show(|cx| layer_norm(cx, &x, None, None, 1e-5).unwrap().bytes().to_vec());
    }

    #[test]
    fn weights_of_another_width_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let (x, w) = (random(1, [2, 8]), random(2, [7]));
        assert!(rms_norm(&cx, &x, &w, 1e-5, Gain::Weight).is_err());
        assert!(layer_norm(&cx, &x, None, Some(&w), 1e-5).is_err());
    }
}
