//! Layers that the parts of the network share, and how they are loaded.

use std::ops::Range;

use mstar_kernels::ops::{self, Activation, AttnSpan, Conv1d, DepthwiseConv1d, Input, Reach, Taps};
use mstar_kernels::{Cx, Epilogue, PackedLinear, Precision, Tensor};
use mstar_weights::WeightFile;

use crate::HibariError;

const EPS: f32 = 1e-5;

/// Loads layers by their name in a weight file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loader<'a> {
    pub(super) file: &'a WeightFile,
    pub(super) precision: Precision,
}

/// A layer norm with weight and bias.
#[derive(Debug)]
pub(super) struct Norm {
    weight: Tensor,
    bias: Tensor,
}

/// A ConvNeXt block: depthwise convolution, norm, two linear layers, scaled, plus what came in.
#[derive(Debug)]
pub(super) struct ConvNext {
    depthwise: DepthwiseConv1d,
    norm: Norm,
    widen: PackedLinear,
    /// The scale `gamma` is multiplied into it.
    narrow: PackedLinear,
}

/// A transformer layer that norms before it attends; every position sees all others.
#[derive(Debug)]
pub(super) struct Transformer {
    heads: usize,
    norm1: Norm,
    attend_in: PackedLinear,
    attend_out: PackedLinear,
    norm2: Norm,
    widen: PackedLinear,
    narrow: PackedLinear,
}

// --- impl Loader ---

impl Loader<'_> {
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, HibariError> {
        let shape_of = mstar_kernels::Shape::new(shape)?;
        Ok(Tensor::from_f32(self.file.f32_of(name, shape)?, shape_of)?)
    }

    pub(super) fn linear(&self, name: &str, (outputs, inputs): (usize, usize)) -> Result<PackedLinear, HibariError> {
        self.linear_named(&format!("{name}.weight"), &format!("{name}.bias"), (outputs, inputs))
    }

    fn linear_named(&self, weight: &str, bias: &str, size: (usize, usize)) -> Result<PackedLinear, HibariError> {
        let weight = self.tensor(weight, &[size.0, size.1])?;
        let bias = self.tensor(bias, &[size.0])?;
        Ok(ops::pack_linear(&weight, Some(&bias), self.precision)?)
    }

    pub(super) fn norm(&self, name: &str, width: usize) -> Result<Norm, HibariError> {
        let weight = self.tensor(&format!("{name}.weight"), &[width])?;
        Ok(Norm { weight, bias: self.tensor(&format!("{name}.bias"), &[width])? })
    }

    /// A convolution with as many rows out as in.
    pub(super) fn conv(&self, name: &str, [outputs, inputs, kernel]: [usize; 3]) -> Result<Conv1d, HibariError> {
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs, kernel])?;
        let bias = self.tensor(&format!("{name}.bias"), &[outputs])?;
        Ok(ops::pack_conv1d(&weight, Some(&bias), Taps::same(kernel, 1), self.precision)?)
    }

    pub(super) fn conv_next(&self, name: &str, size: Size, taps: (usize, usize)) -> Result<ConvNext, HibariError> {
        let (Size { width, inner }, (kernel, dilation)) = (size, taps);
        let weight = self.tensor(&format!("{name}.dw.weight"), &[width, 1, kernel])?;
        let bias = self.tensor(&format!("{name}.dw.bias"), &[width])?;
        Ok(ConvNext {
            depthwise: ops::pack_depthwise_conv1d(&weight, Some(&bias), Taps::same(kernel, dilation))?,
            norm: self.norm(&format!("{name}.norm"), width)?,
            widen: self.linear(&format!("{name}.pw1"), (inner, width))?,
            narrow: self.scaled_linear(name, (width, inner))?,
        })
    }

    /// `pw2` with `gamma` multiplied into its rows and bias.
    fn scaled_linear(&self, name: &str, (outputs, inputs): (usize, usize)) -> Result<PackedLinear, HibariError> {
        let gamma = self.file.f32_of(&format!("{name}.gamma"), &[outputs])?;
        let mut weight = self.tensor(&format!("{name}.pw2.weight"), &[outputs, inputs])?;
        let mut bias = self.tensor(&format!("{name}.pw2.bias"), &[outputs])?;
        for (row, scale) in weight.f32s_mut()?.chunks_exact_mut(inputs).zip(&gamma) {
            row.iter_mut().for_each(|value| *value *= scale);
        }
        bias.f32s_mut()?.iter_mut().zip(&gamma).for_each(|(value, scale)| *value *= scale);
        Ok(ops::pack_linear(&weight, Some(&bias), self.precision)?)
    }

    pub(super) fn transformer(&self, name: &str, size: Size, heads: usize) -> Result<Transformer, HibariError> {
        let Size { width, inner } = size;
        let attention = format!("{name}.self_attn");
        Ok(Transformer {
            heads,
            norm1: self.norm(&format!("{name}.norm1"), width)?,
            attend_in: self.linear_named(
                &format!("{attention}.in_proj_weight"),
                &format!("{attention}.in_proj_bias"),
                (3 * width, width),
            )?,
            attend_out: self.linear(&format!("{attention}.out_proj"), (width, width))?,
            norm2: self.norm(&format!("{name}.norm2"), width)?,
            widen: self.linear(&format!("{name}.linear1"), (inner, width))?,
            narrow: self.linear(&format!("{name}.linear2"), (width, inner))?,
        })
    }
}

/// The width of a layer and of the wider one inside it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) inner: usize,
}

// --- impl Norm ---

impl Norm {
    /// The rows as a linear layer makes them while it packs.
    pub(super) fn of<'a>(&'a self, x: &'a Tensor) -> Input<'a> {
        Input::LayerNorm { x, weight: &self.weight, bias: &self.bias, eps: EPS }
    }

    pub(super) fn run(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, HibariError> {
        Ok(ops::layer_norm(cx, x, Some(&self.weight), Some(&self.bias), EPS)?)
    }
}

// --- impl ConvNext ---

impl ConvNext {
    pub(super) fn run(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, HibariError> {
        self.run_some(cx, x, 0..x.dims()[0])
    }

    /// Computes some of the rows; the others are only their neighbours.
    pub(super) fn run_some(&self, cx: &Cx, x: &Tensor, rows: Range<usize>) -> Result<Tensor, HibariError> {
        let y = ops::depthwise_conv1d(cx, x, &self.depthwise)?.rows(rows.clone())?;
        feed_forward(cx, &x.rows(rows)?, self.norm.of(&y), (&self.widen, &self.narrow))
    }
}

// --- impl Transformer ---

impl Transformer {
    pub(super) fn run(&self, cx: &Cx, x: &Tensor) -> Result<Tensor, HibariError> {
        let (rows, width) = (x.dims()[0], x.dims()[1]);
        let head = width / self.heads;
        let qkv = ops::linear_of(cx, self.norm1.of(x), &self.attend_in, Epilogue::default())?;
        let all = AttnSpan { rows: 0..rows, keys: 0..rows, reach: Reach::Full };
        let scale = 1.0 / (head as f32).sqrt();
        let mixed = ops::attention_joined(cx, &qkv, (self.heads, head), &[all], scale)?.reshape([rows, width])?;
        let residual = Epilogue { residual: Some(x), ..Epilogue::default() };
        let x = ops::linear_with(cx, &mixed, &self.attend_out, residual)?;
        feed_forward(cx, &x, self.norm2.of(&x), (&self.widen, &self.narrow))
    }
}

/// x + narrow(gelu(widen(y))).
fn feed_forward(
    cx: &Cx,
    x: &Tensor,
    y: Input<'_>,
    (widen, narrow): (&PackedLinear, &PackedLinear),
) -> Result<Tensor, HibariError> {
    let wide = ops::linear_of(cx, y, widen, Epilogue { activation: Activation::GeluErf, residual: None })?;
    Ok(ops::linear_with(cx, &wide, narrow, Epilogue { residual: Some(x), ..Epilogue::default() })?)
}
