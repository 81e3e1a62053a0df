//! y = x W^T, with weights packed once for streaming, and what follows it fused.
//!
//! Every (row, output) is one chain of multiply-adds over K, from the first to the last: no tile, batch or thread
//! changes it.

use half::bf16;

use crate::cx::Cpu;
use crate::error::need;
use crate::isa::{LANES, Lanes};
use crate::pool::Disjoint;
use crate::{Cx, DType, KernelError, Shape, Tensor};

mod tile;
use tile::{Finish, Tiles, row_tiles};

/// The form weights are kept and multiplied in; sums are `f32` in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32` weights.
    F32,
    /// Weights rounded to `bf16`, `f32` activations.
    Bf16,
}

/// Weights of a linear layer: panels of sixteen outputs, each `[K][16]`, and the bias, both padded with zeros.
#[derive(Clone, Debug)]
pub struct PackedLinear {
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) panels: Tensor,
    pub(super) bias: Option<Tensor>,
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
        if self.panels.dtype() == DType::BF16 { Precision::Bf16 } else { Precision::F32 }
    }

    /// Returns the bytes that one use of the weights streams.
    pub fn bytes(&self) -> usize {
        self.panels.bytes().len()
    }
}

/// Packs a weight of shape `[outputs, inputs]`, `f32` or `bf16`, and a bias of shape `[outputs]`.
pub fn pack_linear(weight: &Tensor, bias: Option<&Tensor>, precision: Precision) -> Result<PackedLinear, KernelError> {
    let shape = weight.shape();
    need(shape.rank() == 2, "pack_linear", "the weight is [outputs, inputs]", &[shape])?;
    let (outputs, inputs) = (weight.dims()[0], weight.dims()[1]);
    pack(weight, bias, precision, (outputs, inputs), |n, k| n * inputs + k)
}

/// Packs a weight whose element for output `n` and input `k` lies at `place(n, k)`.
pub(super) fn pack(
    weight: &Tensor,
    bias: Option<&Tensor>,
    precision: Precision,
    (outputs, inputs): (usize, usize),
    place: impl Fn(usize, usize) -> usize,
) -> Result<PackedLinear, KernelError> {
    let panels = match (weight.dtype(), precision) {
        (DType::BF16, Precision::F32) => panels::<bf16, f32>(weight, outputs, inputs, place),
        (DType::BF16, Precision::Bf16) => panels::<bf16, bf16>(weight, outputs, inputs, place),
        (_, Precision::F32) => panels::<f32, f32>(weight, outputs, inputs, place),
        (_, Precision::Bf16) => panels::<f32, bf16>(weight, outputs, inputs, place),
    }?;
    let bias = match bias {
        None => None,
        Some(bias) => {
            let fits = bias.shape() == Shape::from([outputs]);
            need(fits, "pack_linear", "the bias is [outputs]", &[bias.shape(), Shape::from([outputs, inputs])])?;
            let wide = bias.to_f32()?;
            let items = wide.f32s()?;
            Some(Tensor::filled([outputs.next_multiple_of(LANES)], |out: &mut [f32]| {
                out[..outputs].copy_from_slice(items);
            })?)
        }
    };
    Ok(PackedLinear { outputs, inputs, panels, bias })
}

fn panels<F: Lanes, T: Lanes>(
    weight: &Tensor,
    outputs: usize,
    inputs: usize,
    place: impl Fn(usize, usize) -> usize,
) -> Result<Tensor, KernelError> {
    let items: &[F] = weight.as_slice()?;
    let count = outputs.div_ceil(LANES);
    Tensor::filled([count, inputs, LANES], |out: &mut [T]| {
        for (panel, out) in out.chunks_exact_mut((inputs * LANES).max(1)).enumerate() {
            let first = panel * LANES;
            for lane in 0..LANES.min(outputs - first) {
                for k in 0..inputs {
                    out[k * LANES + lane] = T::narrow(items[place(first + lane, k)].wide());
                }
            }
        }
    })
}

/// x W^T + bias, for `x` of shape `[.., inputs]`.
pub fn linear(cx: &Cx, x: &Tensor, weight: &PackedLinear) -> Result<Tensor, KernelError> {
    linear_with(cx, x, weight, Epilogue::default())
}

/// [`linear`] with an activation and a residual fused behind it.
pub fn linear_with(cx: &Cx, x: &Tensor, weight: &PackedLinear, epilogue: Epilogue<'_>) -> Result<Tensor, KernelError> {
    let cpu = cx.cpu_for("linear")?;
    let (inputs, outputs) = (weight.inputs, weight.outputs);
    let fits = x.shape().rank() > 0 && x.shape().width() == inputs;
    need(fits, "linear", "the input's rows are as long as the weight's", &[x.shape(), Shape::from([outputs, inputs])])?;
    let shape = x.shape().with_width(outputs);
    if let Some(residual) = epilogue.residual {
        need(residual.shape() == shape, "linear", "the residual is of the output's shape", &[residual.shape(), shape])?;
    }
    let finish = Finish {
        bias: weight.bias.as_ref().map(Tensor::f32s).transpose()?,
        activation: epilogue.activation,
        residual: epilogue.residual.map(Tensor::f32s).transpose()?,
    };
    let product = Product { x: x.f32s()?, rows: shape.height(), inputs, outputs, finish };
    let panels = &weight.panels;
    match panels.dtype() {
        DType::BF16 => product.on(cpu, shape, panels.as_slice::<bf16>()?),
        _ => product.on(cpu, shape, panels.f32s()?),
    }
}

struct Product<'a> {
    x: &'a [f32],
    rows: usize,
    inputs: usize,
    outputs: usize,
    finish: Finish<'a>,
}

/// Multiply-adds that one task should have at least: some 2 us.
const TASK: usize = 64 << 10;
/// Bytes of packed rows that stay in the second-level cache while panels pass by.
const BLOCK: usize = 384 << 10;

impl Product<'_> {
    fn on<W: Lanes>(&self, cpu: Cpu<'_>, shape: Shape, weight: &[W]) -> Result<Tensor, KernelError> {
        Tensor::filled(shape, |y| {
            let tiles = row_tiles(cpu, self.rows);
            let packed = tile::pack_rows(cpu, self.x, self.inputs, &tiles);
            self.multiply(cpu, weight, &tiles, &packed, y);
        })
    }

    /// Splits the output in blocks of rows times groups of panels, one task each.
    fn multiply<W: Lanes>(&self, cpu: Cpu<'_>, weight: &[W], tiles: &[(usize, usize)], packed: &[f32], y: &mut [f32]) {
        let panels = self.outputs.div_ceil(LANES);
        let tallest = tiles.first().map_or(1, |tile| tile.1);
        let per_block = (BLOCK / (tallest * self.inputs * size_of::<f32>()).max(1)).clamp(1, tiles.len().max(1));
        let block_rows = (per_block * tallest).min(self.rows.max(1));
        let group = TASK.div_ceil(block_rows * self.inputs.max(1) * LANES).next_multiple_of(4);
        let groups = panels.div_ceil(group);
        let y = Disjoint::new(y);
        cpu.pool.each(tiles.len().div_ceil(per_block) * groups, |task| {
            let first = (task / groups) * per_block;
            let start = (task % groups) * group;
            cpu.launch(Tiles {
                weight,
                inputs: self.inputs,
                outputs: self.outputs,
                panels: start..panels.min(start + group),
                tiles: &tiles[first..tiles.len().min(first + per_block)],
                packed,
                finish: &self.finish,
                y: &y,
            });
        });
    }
}

#[cfg(test)]
mod tests;
