//! Weights on a device: plain rows `[outputs][inputs]`, as its libraries and kernels take them.

use half::bf16;

use super::blocks::{BLOCK, Blocks};
use super::{Activation, Epilogue, PackedLinear, Precision, Weights};
use crate::isa::{LANES, Lanes};
use crate::{Cx, DType, Device, KernelError, Tensor, gpu};

/// Weights that lie on a device.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) precision: Precision,
    /// `[outputs][inputs]` of `f32` or `bf16`; of blocks `[outputs][blocks][32]`, signed bytes.
    weight: Tensor,
    /// A scale and a minimum of each block, `[outputs][blocks][2]`.
    steps: Option<Tensor>,
}

// --- impl Placed ---

impl Placed {
    pub(super) fn bytes(&self) -> usize {
        self.weight.byte_len() + self.steps.as_ref().map_or(0, Tensor::byte_len)
    }

    /// Why the CPU does not multiply with them.
    pub(super) fn elsewhere(&self) -> KernelError {
        KernelError::Elsewhere { op: "linear", want: Device::Cpu, got: self.weight.device() }
    }

    fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        let steps = self.steps.as_ref().map(|steps| steps.on(cx)).transpose()?;
        Ok(Self { precision: self.precision, weight: self.weight.on(cx)?, steps })
    }
}

// --- impl PackedLinear ---

impl PackedLinear {
    /// Returns the same weights where the context computes. From a device they go to another one, not back to a CPU.
    pub fn on(&self, cx: &Cx) -> Result<Self, KernelError> {
        let placed = match &self.weights {
            Weights::Placed(placed) if cx.gpu().is_none() => return Err(placed.elsewhere()),
            Weights::Placed(placed) => placed.on(cx)?,
            _ if cx.gpu().is_none() => return Ok(self.clone()),
            packed => self.unpacked(packed)?.on(cx)?,
        };
        let bias = self.bias.as_ref().map(|bias| bias.on(cx)).transpose()?;
        Ok(Self { outputs: self.outputs, inputs: self.inputs, weights: Weights::Placed(placed), bias })
    }

    /// The weights as kernels of a device take them.
    pub(in crate::ops) fn on_gpu(&self) -> Result<gpu::ops::Weights<'_>, KernelError> {
        let Self { outputs, inputs, bias, .. } = self;
        match &self.weights {
            Weights::Placed(Placed { weight, steps, .. }) => {
                let (steps, bias) = (steps.as_ref(), bias.as_ref());
                Ok(gpu::ops::Weights { weight, steps, bias, inputs: *inputs, outputs: *outputs })
            }
            _ => Err(KernelError::Elsewhere { op: "linear", want: Device::Cuda(0), got: Device::Cpu }),
        }
    }

    /// Plain rows in host memory.
    fn unpacked(&self, packed: &Weights) -> Result<Placed, KernelError> {
        let (weight, steps) = match packed {
            // Halves that stand for floats are floats again: what they are multiplied with is not rounded.
            Weights::Floats(panels) if panels.dtype() == DType::BF16 => (self.rows::<bf16, 1>(panels)?.to_f32()?, None),
            Weights::Floats(panels) => (self.rows::<f32, 1>(panels)?, None),
            Weights::Pairs(panels) => (self.rows::<bf16, 2>(panels)?, None),
            Weights::Blocks(blocks) => self.bytes_and_steps(blocks)?,
            Weights::Placed(placed) => (placed.weight.clone(), placed.steps.clone()),
        };
        Ok(Placed { precision: self.precision(), weight, steps })
    }

    /// Takes `[panels][K / S][16][S]` apart.
    fn rows<T: Lanes, const S: usize>(&self, panels: &Tensor) -> Result<Tensor, KernelError> {
        let (outputs, inputs) = (self.outputs, self.inputs);
        let (items, steps): (&[T], usize) = (panels.as_slice()?, inputs.div_ceil(S));
        Tensor::filled([outputs, inputs], |out: &mut [T]| {
            for (n, row) in out.chunks_exact_mut(inputs.max(1)).enumerate() {
                let panel = &items[n / LANES * steps * LANES * S..][..steps * LANES * S];
                for (k, x) in row.iter_mut().enumerate() {
                    *x = panel[(k / S * LANES + n % LANES) * S + k % S];
                }
            }
        })
    }

    /// Takes panels of blocks apart.
    fn bytes_and_steps(&self, blocks: &Blocks) -> Result<(Tensor, Option<Tensor>), KernelError> {
        let (outputs, count) = (self.outputs, self.inputs.div_ceil(BLOCK));
        let panels: &[u8] = blocks.panels.as_slice()?;
        let mut steps = Tensor::zeros(DType::F32, [outputs, count, 2])?;
        let pairs = steps.f32s_mut()?.as_chunks_mut::<2>().0;
        let weight = Tensor::filled([outputs, count, BLOCK], |out: &mut [u8]| {
            for (i, (out, pair)) in out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(pairs).enumerate() {
                let (quants, step, minimum) = blocks.kind.block(panels, count, (i / count, i % count));
                *out = quants.map(i8::cast_unsigned);
                *pair = [step, minimum];
            }
        })?;
        Ok((weight, Some(steps)))
    }
}

// --- impl Activation, Epilogue ---

impl Activation {
    /// The function's number in maths.cuh.
    pub(in crate::ops) fn on_gpu(self) -> u32 {
        match self {
            Self::None => 0,
            Self::GeluErf => 1,
            Self::GeluTanh => 2,
            Self::Relu => 3,
            Self::Silu => 4,
        }
    }
}

impl<'a> Epilogue<'a> {
    /// What follows the product, as kernels of a device take it.
    pub(in crate::ops) fn on_gpu(self) -> gpu::ops::Behind<'a> {
        gpu::ops::Behind { function: self.activation.on_gpu(), residual: self.residual }
    }
}
