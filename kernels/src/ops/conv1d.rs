//! Convolution over time of rows of channels, dense and depthwise.
//!
//! The dense one lays the taps of an output row side by side, as rows are needed, and is a linear layer from there on.

use std::ops::Range;

use super::linear::{Epilogue, PackedLinear, Precision, RowSource, linear_with, pack, run};
use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::Isa;
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// Where the taps of a convolution lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taps {
    /// Input rows from one output row to the next.
    pub stride: usize,
    /// Rows of zeros before and after the input.
    pub padding: (usize, usize),
    /// Input rows from one tap to the next.
    pub dilation: usize,
}

/// A dense convolution's weights, packed.
#[derive(Clone, Debug)]
pub struct Conv1d {
    linear: PackedLinear,
    channels: usize,
    kernel: usize,
    taps: Taps,
}

/// A depthwise convolution's weights, `[kernel][channels]`.
#[derive(Clone, Debug)]
pub struct DepthwiseConv1d {
    weight: Tensor,
    bias: Option<Tensor>,
    taps: Taps,
}

// --- impl Taps ---

impl Default for Taps {
    fn default() -> Self {
        Self { stride: 1, padding: (0, 0), dilation: 1 }
    }
}

impl Taps {
    /// Centres a kernel of odd size: as many output rows as input rows at stride 1.
    pub fn same(kernel: usize, dilation: usize) -> Self {
        let side = kernel.saturating_sub(1) * dilation / 2;
        Self { stride: 1, padding: (side, side), dilation }
    }

    /// Returns the number of output rows for `rows` input rows.
    pub fn outputs(&self, rows: usize, kernel: usize) -> usize {
        let reach = kernel.saturating_sub(1) * self.dilation + 1;
        let padded = rows + self.padding.0 + self.padding.1;
        if padded < reach { 0 } else { (padded - reach) / self.stride + 1 }
    }

    /// Returns the input row under tap `tap` of output row `row`, unless it is padding.
    #[inline(always)]
    fn source(&self, row: usize, tap: usize, rows: usize) -> Option<usize> {
        let source = (row * self.stride + tap * self.dilation).checked_sub(self.padding.0)?;
        (source < rows).then_some(source)
    }

    fn sound(&self, op: &'static str) -> Result<(), KernelError> {
        let rule = "stride and dilation are at least 1";
        need(self.stride > 0 && self.dilation > 0, op, rule, &[Shape::from([self.stride, self.dilation])])
    }
}

// --- impl Conv1d, DepthwiseConv1d ---

impl Conv1d {
    /// A convolution whose weights are packed already, tap after tap of all channels.
    pub(super) fn of(linear: PackedLinear, channels: usize, kernel: usize, taps: Taps) -> Self {
        Self { linear, channels, kernel, taps }
    }

    /// Returns the same weights where the context computes.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        Ok(Self { linear: self.linear.on(cx)?, ..self.clone() })
    }
}

impl DepthwiseConv1d {
    /// Returns the same weights where the context computes.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        let bias = self.bias.as_ref().map(|bias| bias.on(cx)).transpose()?;
        Ok(Self { weight: self.weight.on(cx)?, bias, taps: self.taps })
    }
}

/// Packs a weight of shape `[outputs, channels, kernel]` and a bias of shape `[outputs]`.
pub fn pack_conv1d(
    weight: &Tensor,
    bias: Option<&Tensor>,
    taps: Taps,
    precision: Precision,
) -> Result<Conv1d, KernelError> {
    taps.sound("pack_conv1d")?;
    need(weight.shape().rank() == 3, "pack_conv1d", "the weight is [outputs, channels, kernel]", &[weight.shape()])?;
    let (outputs, channels, kernel) = (weight.dims()[0], weight.dims()[1], weight.dims()[2]);
    let inputs = channels * kernel;
    let place = |n: usize, k: usize| n * inputs + (k % channels) * kernel + k / channels;
    let linear = pack(weight, bias, precision, (outputs, inputs), place)?;
    Ok(Conv1d { linear, channels, kernel, taps })
}

/// Convolves `x` of shape `[rows, channels]`, with what the epilogue fuses behind it.
pub fn conv1d(cx: &Cx, x: &Tensor, conv: &Conv1d, epilogue: Epilogue<'_>) -> Result<Tensor, KernelError> {
    let fits = x.shape().rank() == 2 && x.dims()[1] == conv.channels;
    need(fits, "conv1d", "x is [rows, the weight's channels]", &[x.shape(), Shape::from([conv.channels])])?;
    if conv.kernel == 1 && conv.taps == Taps::default() {
        return linear_with(cx, x, &conv.linear, epilogue);
    }
    let shape = Shape::from([conv.taps.outputs(x.dims()[0], conv.kernel), conv.linear.outputs()]);
    if let Some(residual) = epilogue.residual {
        let rule = "the residual is of the output's shape";
        need(residual.shape() == shape, "conv1d", rule, &[residual.shape(), shape])?;
    }
    if let Some(gpu) = cx.gpu() {
        let shape = (conv.taps, conv.channels);
        return gpu::ops::conv1d(gpu, x, conv.linear.on_gpu()?, shape, epilogue.on_gpu());
    }
    let cpu = cx.cpu_for("conv1d")?;
    let gather =
        Gather { x: x.f32s()?, rows: x.dims()[0], channels: conv.channels, kernel: conv.kernel, taps: conv.taps };
    run(cpu, &gather, &conv.linear, epilogue, shape)
}

/// Packs a weight of shape `[channels, 1, kernel]` or `[channels, kernel]` and a bias of shape `[channels]`.
pub fn pack_depthwise_conv1d(
    weight: &Tensor,
    bias: Option<&Tensor>,
    taps: Taps,
) -> Result<DepthwiseConv1d, KernelError> {
    taps.sound("pack_depthwise_conv1d")?;
    let (shape, dims) = (weight.shape(), weight.dims());
    let fits = matches!(dims, [_, 1, _] | [_, _]);
    need(fits, "pack_depthwise_conv1d", "the weight is [channels, 1, kernel]", &[shape])?;
    let (channels, kernel) = (dims[0], shape.width());
    if let Some(bias) = bias {
        let fits = bias.shape() == Shape::from([channels]);
        need(fits, "pack_depthwise_conv1d", "the bias is [channels]", &[shape, bias.shape()])?;
    }
    let wide = weight.to_f32()?;
    let items = wide.f32s()?;
    let weight = Tensor::filled([kernel, channels], |out: &mut [f32]| {
        for (i, out) in out.iter_mut().enumerate() {
            *out = items[(i % channels) * kernel + i / channels];
        }
    })?;
    Ok(DepthwiseConv1d { weight, bias: bias.map(Tensor::to_f32).transpose()?, taps })
}

/// Convolves every channel of `x`, of shape `[rows, channels]`, on its own.
pub fn depthwise_conv1d(cx: &Cx, x: &Tensor, conv: &DepthwiseConv1d) -> Result<Tensor, KernelError> {
    let (kernel, channels) = (conv.weight.dims()[0], conv.weight.dims()[1]);
    let fits = x.shape().rank() == 2 && x.dims()[1] == channels;
    need(fits, "depthwise_conv1d", "x is [rows, the weight's channels]", &[x.shape(), conv.weight.shape()])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::depthwise_conv1d(gpu, x, &conv.weight, conv.bias.as_ref(), conv.taps);
    }
    let cpu = cx.cpu_for("depthwise_conv1d")?;
    let rows = conv.taps.outputs(x.dims()[0], kernel);
    let bias = conv.bias.as_ref().map(Tensor::f32s).transpose()?;
    let lanes =
        Depthwise { x: x.f32s()?, rows: x.dims()[0], weight: conv.weight.f32s()?, bias, channels, taps: conv.taps };
    Tensor::written([rows, channels], |out| cpu.rows(out, channels, &lanes))
}

struct Gather<'a> {
    x: &'a [f32],
    rows: usize,
    channels: usize,
    kernel: usize,
    taps: Taps,
}

impl RowSource for Gather<'_> {
    fn rows<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<f32>) -> &'s [f32] {
        scratch.clear();
        for row in rows {
            for tap in 0..self.kernel {
                match self.taps.source(row, tap, self.rows) {
                    Some(source) => scratch.extend_from_slice(&self.x[source * self.channels..][..self.channels]),
                    None => scratch.resize(scratch.len() + self.channels, 0.0),
                }
            }
        }
        scratch
    }
}

struct Depthwise<'a> {
    x: &'a [f32],
    rows: usize,
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    channels: usize,
    taps: Taps,
}

impl RowKernel for Depthwise<'_> {
    const COST: usize = 6;

    /// Tap after tap over the whole row: each channel's sum is a chain over the taps.
    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        match self.bias {
            Some(bias) => out.copy_from_slice(bias),
            None => out.fill(0.0),
        }
        for (tap, weight) in self.weight.chunks_exact(self.channels.max(1)).enumerate() {
            let Some(source) = self.taps.source(row, tap, self.rows) else { continue };
            let (x, x_rest) = self.x[source * self.channels..][..self.channels].as_chunks();
            let (weight, weight_rest) = weight.as_chunks();
            let (sums, sums_rest) = out.as_chunks_mut();
            for ((sum, x), weight) in sums.iter_mut().zip(x).zip(weight) {
                isa.store(isa.fma(isa.load(weight), isa.load(x), isa.load(sum)), sum);
            }
            let sum = isa.load_part(sums_rest, 0.0);
            isa.store_part(isa.fma(isa.load_part(weight_rest, 0.0), isa.load_part(x_rest, 0.0), sum), sums_rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random};

    const CASES: [(usize, Taps); 5] = [
        (3, Taps { stride: 1, padding: (1, 1), dilation: 1 }),
        (3, Taps { stride: 2, padding: (1, 1), dilation: 1 }),
        (7, Taps { stride: 1, padding: (24, 24), dilation: 8 }),
        (5, Taps { stride: 1, padding: (4, 0), dilation: 1 }),
        (1, Taps { stride: 1, padding: (0, 0), dilation: 1 }),
    ];

    /// A convolution in `groups` (1, or one per channel), in f64.
    fn reference(x: &Tensor, w: &Tensor, b: &Tensor, taps: Taps, depthwise: bool) -> Vec<f32> {
        let (rows, channels, kernel) = (x.dims()[0], x.dims()[1], w.shape().width());
        let (xs, ws, inner) = (x.f32s().unwrap(), w.f32s().unwrap(), w.dims()[1]);
        let count = taps.outputs(rows, kernel);
        let mut out = Vec::new();
        for row in 0..count {
            for n in 0..w.dims()[0] {
                let mut sum = f64::from(b.f32s().unwrap()[n]);
                for (c, tap) in (0..inner).flat_map(|c| (0..kernel).map(move |tap| (c, tap))) {
                    let source = (row * taps.stride + tap * taps.dilation) as isize - taps.padding.0 as isize;
                    if (0..rows as isize).contains(&source) {
                        let x = xs[source as usize * channels + if depthwise { n } else { c }];
                        sum += f64::from(x) * f64::from(ws[(n * inner + c) * kernel + tap]);
                    }
                }
                out.push(sum as f32);
            }
        }
        out
    }

    #[test]
    fn dense_convolution_follows_its_definition() {
        for (kernel, taps) in CASES {
            let (x, w, b) = (random(1, [23, 10]), random(2, [37, 10, kernel]), random(3, [37]));
            let want = reference(&x, &w, &b, taps, false);
            let packed = pack_conv1d(&w, Some(&b), taps, Precision::F32).unwrap();
            on_every_tier(|cx| {
                let got = conv1d(cx, &x, &packed, Epilogue::default()).unwrap();
                assert_eq!(got.dims(), [taps.outputs(23, kernel), 37]);
                close(got.f32s().unwrap(), &want, 1e-5);
            });
        }
    }

    #[test]
    fn depthwise_convolution_follows_its_definition() {
        for (kernel, taps) in CASES {
            let (x, w, b) = (random(1, [23, 21]), random(2, [21, 1, kernel]), random(3, [21]));
            let want = reference(&x, &w, &b, taps, true);
            let packed = pack_depthwise_conv1d(&w, Some(&b), taps).unwrap();
            on_every_tier(|cx| {
                close(depthwise_conv1d(cx, &x, &packed).unwrap().f32s().unwrap(), &want, 1e-5);
            });
        }
    }

    #[test]
    fn a_row_far_from_the_cut_is_the_same_in_a_chunk() {
        let (x, w) = (random(1, [40, 16]), random(2, [16, 16, 3]));
        let taps = Taps::same(3, 1);
        let dense = pack_conv1d(&w, None, taps, Precision::F32).unwrap();
        let deep = pack_depthwise_conv1d(&random(3, [16, 3]), None, taps).unwrap();
        on_every_tier(|cx| {
            let chunk = x.rows(10..30).unwrap();
            let (whole, part) =
                (depthwise_conv1d(cx, &x, &deep).unwrap(), depthwise_conv1d(cx, &chunk, &deep).unwrap());
            assert_eq!(whole.rows(11..29).unwrap().bytes(), part.rows(1..19).unwrap().bytes());
            let run = |x| conv1d(cx, x, &dense, Epilogue::default()).unwrap();
            assert_eq!(run(&x).rows(11..29).unwrap().bytes(), run(&chunk).rows(1..19).unwrap().bytes());
        });
    }

    #[test]
    fn kernels_that_do_not_fit_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let taps = Taps::default();
        let packed = pack_conv1d(&random(1, [4, 3, 5]), None, taps, Precision::F32).unwrap();
        assert!(conv1d(&cx, &random(2, [9, 4]), &packed, Epilogue::default()).is_err());
        assert_eq!(conv1d(&cx, &random(2, [4, 3]), &packed, Epilogue::default()).unwrap().dims(), [0, 4]);
        let still = Taps { stride: 0, ..taps };
        assert!(pack_conv1d(&random(1, [4, 3, 5]), None, still, Precision::F32).is_err());
        assert!(pack_depthwise_conv1d(&random(1, [4, 2, 5]), None, taps).is_err());
        assert!(pack_depthwise_conv1d(&random(1, [4, 5]), Some(&random(2, [5])), taps).is_err());
    }
}
