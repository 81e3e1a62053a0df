//! Floats laid out in the panels of a form.

use half::bf16;

use super::blocks::Kind;
use super::{PackedLinear, Precision, Weights, gguf};
use crate::error::need;
use crate::isa::{LANES, Lanes};
use crate::{DType, KernelError, Shape, Tensor};

/// Packs a weight whose element for output `n` and input `k` lies at `place(n, k)`.
pub(in crate::ops) fn pack(
    weight: &Tensor,
    bias: Option<&Tensor>,
    precision: Precision,
    (outputs, inputs): (usize, usize),
    place: impl Fn(usize, usize) -> usize,
) -> Result<PackedLinear, KernelError> {
    let weights = match weight.dtype() {
        DType::BF16 => weights::<bf16>(weight, precision, (outputs, inputs), place)?,
        _ => weights::<f32>(weight, precision, (outputs, inputs), place)?,
    };
    Ok(PackedLinear { outputs, inputs, weights, bias: pad_bias(bias, outputs)? })
}

/// Widens a bias of shape `[outputs]` and pads it to whole panels.
pub(super) fn pad_bias(bias: Option<&Tensor>, outputs: usize) -> Result<Option<Tensor>, KernelError> {
    let Some(bias) = bias else { return Ok(None) };
    let fits = bias.shape() == Shape::from([outputs]);
    need(fits, "pack_linear", "the bias is [outputs]", &[bias.shape(), Shape::from([outputs])])?;
    let wide = bias.to_f32()?;
    let items = wide.f32s()?;
    let padded = Tensor::filled([outputs.next_multiple_of(LANES)], |out: &mut [f32]| {
        out[..outputs].copy_from_slice(items);
    })?;
    Ok(Some(padded))
}

fn weights<F: Lanes>(
    weight: &Tensor,
    precision: Precision,
    extents: (usize, usize),
    place: impl Fn(usize, usize) -> usize,
) -> Result<Weights, KernelError> {
    let items: &[F] = weight.as_slice()?;
    let row = |n: usize, out: &mut [f32]| {
        for (k, out) in out.iter_mut().enumerate() {
            *out = items[place(n, k)].wide();
        }
    };
    if matches!(precision, Precision::Q8 | Precision::Q4) {
        let finite = items.iter().all(|x| x.wide().is_finite());
        need(finite, "pack_linear", "weights that are rounded to blocks are finite", &[weight.shape()])?;
    }
    Ok(match precision {
        Precision::F32 if items.iter().all(|x| fits_bf16(x.wide())) => {
            Weights::Floats(panels::<bf16, 1>(extents, row)?)
        }
        Precision::F32 => Weights::Floats(panels::<f32, 1>(extents, row)?),
        Precision::Bf16 => Weights::Pairs(panels::<bf16, 2>(extents, row)?),
        Precision::Q8 => Weights::Blocks(gguf::quantised(Kind::Bytes, extents, row)?),
        Precision::Q4 => Weights::Blocks(gguf::quantised(Kind::Halves, extents, row)?),
    })
}

fn fits_bf16(x: f32) -> bool {
    x.to_bits() & 0xffff == 0
}

/// Lays rows out as `[panels][K / S][16][S]`, with `K` rounded up to a multiple of `S`.
fn panels<T: Lanes, const S: usize>(
    (outputs, inputs): (usize, usize),
    row: impl Fn(usize, &mut [f32]),
) -> Result<Tensor, KernelError> {
    let (count, steps) = (outputs.div_ceil(LANES), inputs.div_ceil(S));
    let mut floats = vec![0.0; inputs];
    Tensor::filled([count, steps, LANES, S], |out: &mut [T]| {
        for (panel, out) in out.chunks_exact_mut((steps * LANES * S).max(1)).enumerate() {
            for lane in 0..LANES.min(outputs - panel * LANES) {
                row(panel * LANES + lane, &mut floats);
                for (k, &x) in floats.iter().enumerate() {
                    out[(k / S * LANES + lane) * S + k % S] = T::narrow(x);
                }
            }
        }
    })
}
