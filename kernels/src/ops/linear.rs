//! y = x W^T, with weights packed once for streaming, and what follows it fused.
//!
//! Every (row, output) is one chain over K, from the first to the last: no tile, batch or thread changes it.

use half::bf16;

use crate::cx::Cpu;
use crate::error::need;
use crate::isa::Isa;
use crate::ops::activation::{GeluErf, GeluTanh, LaneFn, Relu, Silu};
use crate::{Cx, DType, KernelError, Shape, Tensor};

mod blocks;
mod floats;
mod gguf;
mod input;
mod pack;
mod pairs;
mod place;
mod rows;
mod tile;
use blocks::{BlockProduct, Blocks};
use floats::Floats;
pub use gguf::BlockFormat;
pub use input::{Input, linear_of};
pub(super) use pack::pack;
use pairs::Pairs;
use place::Placed;
pub(super) use rows::RowSource;
use rows::Rows;
use tile::{Finish, Product, row_tiles};

/// The form that a layer is kept and multiplied in; sums are `f32` in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32` weights and activations. Weights that `bf16` holds exactly are stored so, which changes no result.
    F32,
    /// Weights and activations rounded to `bf16`, whose products are exact.
    Bf16,
    /// Weights of eight bits with a scale per 32, activations rounded likewise.
    Q8,
    /// Weights of four bits with a scale (of GGUF's Q4_K, also a minimum) per 32, activations rounded to eight bits.
    Q4,
}

/// Weights of a linear layer in panels of sixteen outputs, and the bias, both padded with zeros.
#[derive(Clone, Debug)]
pub struct PackedLinear {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    weights: Weights,
    bias: Option<Tensor>,
}

/// Bytes of rows, in `f32`, that are packed at a time: they stay in the last cache beside the weights.
const ROUND: usize = 4 << 20;

#[derive(Clone, Debug)]
enum Weights {
    /// `[panels][K][16]` of `f32`, or of `bf16` that hold the same numbers.
    Floats(Tensor),
    /// `[panels][K/2][16][2]` of `bf16`.
    Pairs(Tensor),
    Blocks(Blocks),
    /// On a device.
    Placed(Placed),
}

/// The function applied to the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The sum itself.
    #[default]
    None,
    /// As [`super::gelu_erf`].
    GeluErf,
    /// As [`super::gelu_tanh`].
    GeluTanh,
    /// As [`super::relu`].
    Relu,
    /// As [`super::silu`].
    Silu,
}

/// What is fused behind the product and its bias: y = activation(x W^T + bias) + residual.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// The function applied to the sum.
    pub activation: Activation,
    /// Added last; of the output's shape.
    pub residual: Option<&'a Tensor>,
}

// --- impl Activation ---

impl Activation {
    /// The function's lanes.
    #[inline(always)]
    pub(super) fn lanes<I: Isa>(self, isa: I, x: I::V) -> I::V {
        match self {
            Self::None => x,
            Self::GeluErf => GeluErf.lanes(isa, x),
            Self::GeluTanh => GeluTanh.lanes(isa, x),
            Self::Relu => Relu.lanes(isa, x),
            Self::Silu => Silu.lanes(isa, x),
        }
    }
}

// --- impl PackedLinear ---

impl PackedLinear {
    /// Returns the length of an output row.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the length of an input row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the form of the weights.
    pub fn precision(&self) -> Precision {
        match &self.weights {
            Weights::Floats(_) => Precision::F32,
            Weights::Pairs(_) => Precision::Bf16,
            Weights::Blocks(blocks) if blocks.kind == blocks::Kind::Bytes => Precision::Q8,
            Weights::Blocks(_) => Precision::Q4,
            Weights::Placed(placed) => placed.precision,
        }
    }

    /// Returns the bytes that one use of the weights streams.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            Weights::Floats(panels) | Weights::Pairs(panels) => panels.byte_len(),
            Weights::Blocks(blocks) => blocks.panels.byte_len(),
            Weights::Placed(placed) => placed.bytes(),
        }
    }
}

/// Packs a weight of shape `[outputs, inputs]`, `f32` or `bf16`, and a bias of shape `[outputs]`.
pub fn pack_linear(weight: &Tensor, bias: Option<&Tensor>, precision: Precision) -> Result<PackedLinear, KernelError> {
    let shape = weight.shape();
    need(shape.rank() == 2, "pack_linear", "the weight is [outputs, inputs]", &[shape])?;
    let (outputs, inputs) = (weight.dims()[0], weight.dims()[1]);
    pack(weight, bias, precision, (outputs, inputs), |n, k| n * inputs + k)
}

/// Packs the blocks of a GGUF tensor of shape `[outputs, inputs]`, as they lie in the file, and a bias of shape
/// `[outputs]`.
pub fn pack_blocks(
    format: BlockFormat,
    bytes: &[u8],
    (outputs, inputs): (usize, usize),
    bias: Option<&Tensor>,
) -> Result<PackedLinear, KernelError> {
    let weights = Weights::Blocks(gguf::blocks(format, bytes, (outputs, inputs))?);
    Ok(PackedLinear { outputs, inputs, weights, bias: pack::pad_bias(bias, outputs)? })
}

/// x W^T + bias, for `x` of shape `[.., inputs]`.
pub fn linear(cx: &Cx, x: &Tensor, weight: &PackedLinear) -> Result<Tensor, KernelError> {
    linear_with(cx, x, weight, Epilogue::default())
}

/// [`linear`] with an activation and a residual fused behind it.
pub fn linear_with(cx: &Cx, x: &Tensor, weight: &PackedLinear, epilogue: Epilogue<'_>) -> Result<Tensor, KernelError> {
    linear_of(cx, Input::Rows(x), weight, epilogue)
}

/// The layer's results for the rows of a source, of which `shape` says how many.
pub(super) fn run<S: RowSource>(
    cpu: Cpu<'_>,
    source: &S,
    weight: &PackedLinear,
    epilogue: Epilogue<'_>,
    shape: Shape,
) -> Result<Tensor, KernelError> {
    let (rows, outputs) = (shape.height(), weight.outputs);
    let bias = weight.bias.as_ref().map(Tensor::f32s).transpose()?;
    let residual = epilogue.residual.map(Tensor::f32s).transpose()?;
    let round = (ROUND / (weight.inputs.max(1) * size_of::<f32>())).max(1).next_multiple_of(48);
    let mut outcome = Ok(());
    let y = Tensor::written(shape, |y: &mut [f32]| {
        outcome = (0..rows).step_by(round).try_for_each(|start| {
            let part = start * outputs..rows.min(start + round) * outputs;
            let residual = residual.map(|residual| &residual[part.clone()]);
            let finish = Finish { bias, activation: epilogue.activation, residual };
            let from = Rows { source, start, width: weight.inputs };
            multiply(cpu, &from, weight, finish, &mut y[part])
        });
    })?;
    outcome.map(|()| y)
}

/// Packs the rows for the weights' form and runs the product.
fn multiply<S: RowSource>(
    cpu: Cpu<'_>,
    from: &Rows<'_, S>,
    weight: &PackedLinear,
    finish: Finish<'_>,
    y: &mut [f32],
) -> Result<(), KernelError> {
    let (inputs, outputs) = (weight.inputs, weight.outputs);
    let count = y.len() / outputs.max(1);
    match &weight.weights {
        Weights::Floats(panels) => {
            let tiles = &row_tiles::<false>(cpu, count);
            let (rows, row_bytes) = (&floats::pack_rows(cpu, from, tiles), inputs * size_of::<f32>());
            match panels.dtype() {
                DType::BF16 => {
                    let form = Floats { panels: panels.as_slice::<bf16>()?, rows, inputs };
                    Product { form, tiles, inputs, row_bytes, outputs, finish }.run(cpu, y);
                }
                _ => {
                    let form = Floats { panels: panels.f32s()?, rows, inputs };
                    Product { form, tiles, inputs, row_bytes, outputs, finish }.run(cpu, y);
                }
            }
        }
        Weights::Pairs(panels) => {
            let tiles = &row_tiles::<true>(cpu, count);
            let rows = &pairs::pack_rows(cpu, from, tiles);
            let form = Pairs { panels: panels.as_slice()?, rows, inputs };
            Product { form, tiles, inputs, row_bytes: rows.row_bytes, outputs, finish }.run_pairs(cpu, y);
        }
        Weights::Blocks(blocks) => {
            let tiles = &row_tiles::<true>(cpu, count);
            let lifted = blocks.lifted_for(count)?;
            let rows = &blocks::pack_rows(cpu, from, tiles, lifted.is_some());
            let form = BlockProduct { kind: blocks.kind, panels: blocks.panels.as_slice()?, lifted, rows };
            Product { form, tiles, inputs, row_bytes: rows.row_bytes(), outputs, finish }.run(cpu, y);
        }
        Weights::Placed(placed) => return Err(placed.elsewhere()),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
