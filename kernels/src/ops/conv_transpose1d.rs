//! Transposed convolution over time of rows of channels: up-sampling in audio decoders.
//!
//! Output rows that lie `stride` apart see the same input rows under other taps. So `stride` of them are computed as one
//! row of a convolution with `stride` times as many outputs, which lie in memory as the output's rows do.

use super::conv1d::{Conv1d, Taps, conv1d};
use super::linear::{Epilogue, Precision, pack};
use crate::error::need;
use crate::{Cx, KernelError, Shape, Tensor};

/// A transposed convolution's weights, packed.
#[derive(Clone, Debug)]
pub struct ConvTranspose1d {
    conv: Conv1d,
    outputs: usize,
    kernel: usize,
    stride: usize,
    padding: (usize, usize),
}

// --- impl ConvTranspose1d ---

impl ConvTranspose1d {
    /// Returns the same weights where the context computes.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        Ok(Self { conv: self.conv.on(cx)?, ..self.clone() })
    }
}

/// Packs a weight of shape `[channels, outputs, kernel]` and a bias of shape `[outputs]`; `padding` output rows are cut
/// off before and after.
pub fn pack_conv_transpose1d(
    weight: &Tensor,
    bias: Option<&Tensor>,
    (stride, padding): (usize, (usize, usize)),
    precision: Precision,
) -> Result<ConvTranspose1d, KernelError> {
    let shape = weight.shape();
    let &[channels, outputs, kernel] = weight.dims() else {
        return Err(KernelError::shape("pack_conv_transpose1d", "the weight is [channels, outputs, kernel]", &[shape]));
    };
    let rule = "stride, kernel and channels are at least 1";
    need(stride > 0 && kernel > 0 && channels > 0, "pack_conv_transpose1d", rule, &[shape, Shape::from([stride])])?;
    let taps = kernel.div_ceil(stride);
    // Tap `taps - 1 - i` of the convolution is `i` strides behind; what lies beyond the kernel is zero.
    let wide = weight.to_f32()?;
    let items = wide.f32s()?;
    let spread = Tensor::filled([stride * outputs, taps * channels], |out: &mut [f32]| {
        for (row, out) in out.chunks_exact_mut(taps * channels).enumerate() {
            let (phase, n) = (row / outputs, row % outputs);
            for (k, out) in out.iter_mut().enumerate() {
                let place = phase + (taps - 1 - k / channels) * stride;
                if place < kernel {
                    *out = items[(k % channels * outputs + n) * kernel + place];
                }
            }
        }
    })?;
    let bias = bias.map(|bias| repeated(bias, outputs, stride)).transpose()?;
    let extents = (stride * outputs, taps * channels);
    let linear = pack(&spread, bias.as_ref(), precision, extents, |n, k| n * extents.1 + k)?;
    let around = Taps { stride: 1, padding: (taps - 1, taps - 1), dilation: 1 };
    let conv = Conv1d::of(linear, channels, taps, around);
    Ok(ConvTranspose1d { conv, outputs, kernel, stride, padding })
}

fn repeated(bias: &Tensor, outputs: usize, stride: usize) -> Result<Tensor, KernelError> {
    let fits = bias.shape() == Shape::from([outputs]);
    need(fits, "pack_conv_transpose1d", "the bias is [outputs]", &[bias.shape(), Shape::from([outputs])])?;
    Tensor::from_f32(bias.to_f32()?.f32s()?.repeat(stride), [stride * outputs])
}

/// Convolves `x` of shape `[rows, channels]`.
pub fn conv_transpose1d(cx: &Cx, x: &Tensor, conv: &ConvTranspose1d) -> Result<Tensor, KernelError> {
    let fits = x.shape().rank() == 2;
    need(fits, "conv_transpose1d", "x is [rows, the weight's channels]", &[x.shape()])?;
    let rows = match x.dims()[0] {
        0 => 0,
        rows => (rows - 1) * conv.stride + conv.kernel,
    };
    let (start, end) = (conv.padding.0.min(rows), rows.saturating_sub(conv.padding.1));
    let steps = conv1d(cx, x, &conv.conv, Epilogue::default())?;
    let all = steps.reshape([steps.dims()[0] * conv.stride, conv.outputs])?;
    all.rows(start..end.max(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random};

    /// Every input row adds its kernel to the output, in f64.
    fn reference(x: &Tensor, w: &Tensor, b: &Tensor, stride: usize, padding: (usize, usize)) -> Vec<f32> {
        let (rows, channels, outputs, kernel) = (x.dims()[0], x.dims()[1], w.dims()[1], w.dims()[2]);
        let (xs, ws) = (x.f32s().unwrap(), w.f32s().unwrap());
        let all = (rows - 1) * stride + kernel;
        let mut sums: Vec<f64> = b.f32s().unwrap().iter().map(|&b| f64::from(b)).collect::<Vec<_>>().repeat(all);
        for (row, c) in (0..rows).flat_map(|row| (0..channels).map(move |c| (row, c))) {
            for (n, tap) in (0..outputs).flat_map(|n| (0..kernel).map(move |tap| (n, tap))) {
                let w = ws[(c * outputs + n) * kernel + tap];
                sums[(row * stride + tap) * outputs + n] += f64::from(xs[row * channels + c]) * f64::from(w);
            }
        }
        sums[padding.0 * outputs..(all - padding.1) * outputs].iter().map(|&sum| sum as f32).collect()
    }

    #[test]
    fn transposed_convolution_follows_its_definition() {
        for (stride, kernel, padding) in
            [(1, 3, (1, 1)), (2, 4, (1, 1)), (8, 16, (4, 4)), (5, 11, (3, 2)), (4, 3, (0, 0))]
        {
            let (x, w, b) = (random(1, [13, 6]), random(2, [6, 10, kernel]), random(3, [10]));
            let packed = pack_conv_transpose1d(&w, Some(&b), (stride, padding), Precision::F32).unwrap();
            let want = reference(&x, &w, &b, stride, padding);
            on_every_tier(|cx| close(conv_transpose1d(cx, &x, &packed).unwrap().f32s().unwrap(), &want, 1e-5));
        }
    }

    #[test]
    fn rows_far_from_the_cut_have_the_same_bits_in_a_chunk() {
        let (x, w) = (random(1, [30, 8]), random(2, [8, 5, 4]));
        for precision in [Precision::F32, Precision::Bf16] {
            let packed = pack_conv_transpose1d(&w, None, (2, (1, 1)), precision).unwrap();
            on_every_tier(|cx| {
                let run = |x| conv_transpose1d(cx, x, &packed).unwrap();
                let (whole, part) = (run(&x), run(&x.rows(10..20).unwrap()));
                assert_eq!(whole.rows(22..38).unwrap().bytes(), part.rows(2..18).unwrap().bytes());
            });
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let w = random(1, [4, 3, 5]);
        assert!(pack_conv_transpose1d(&w, None, (0, (0, 0)), Precision::F32).is_err());
        assert!(pack_conv_transpose1d(&w, Some(&random(2, [4])), (2, (0, 0)), Precision::F32).is_err());
        let packed = pack_conv_transpose1d(&w, None, (2, (1, 1)), Precision::F32).unwrap();
        assert!(conv_transpose1d(&cx, &random(2, [9, 5]), &packed).is_err());
        assert_eq!(conv_transpose1d(&cx, &random(2, [0, 4]), &packed).unwrap().dims(), [0, 3]);
    }
}
