//! Normalisation over groups of channels: in pieces of fixed height, whose sums are added in their order.

use std::sync::Arc;

use super::{THREADS, count, few, items, narrow, result};
use crate::gpu::Gpu;
use crate::ops::GroupNorm;
use crate::{DType, KernelError, Tensor};

/// Rows of a piece; see norm.cu.
const PIECE: usize = 256;

/// `function` of the normalised `x`, `[.., channels]`.
pub(crate) fn group_norm(
    gpu: &Arc<Gpu>,
    x: &Tensor,
    norm: GroupNorm<'_>,
    function: u32,
) -> Result<Tensor, KernelError> {
    let (op, f32) = ("group_norm", DType::F32);
    let (rows, channels, groups) = (x.shape().height(), x.shape().width(), norm.groups);
    let pieces = rows.div_ceil(PIECE);
    let (_parts, to_parts) = result(gpu, op, f32, [groups, pieces])?;
    let (means, to_means) = result(gpu, op, f32, [groups])?;
    let (variances, to_variances) = result(gpu, op, f32, [groups])?;
    let (out, at) = result(gpu, op, f32, x.shape())?;
    let from = x.at(gpu, op, f32)?;
    let [rows_arg, channels_arg, groups_arg, pieces_arg] = [
        narrow(op, "rows", rows)?,
        narrow(op, "channels", channels)?,
        narrow(op, "groups", groups)?,
        narrow(op, "rows", pieces)?,
    ];
    let members = (rows * (channels / groups.max(1))) as f32;
    for (squared, to) in [(0u32, to_means), (1, to_variances)] {
        let args = [from, to_means, to_parts, rows_arg.into(), channels_arg.into(), groups_arg.into(), squared.into()];
        gpu.launch("group_parts", [pieces_arg, few(op, "groups", groups)?, 1], THREADS, &args)?;
        let args = [to_parts, to, pieces_arg.into(), groups_arg.into(), members.into()];
        gpu.launch("group_mean", items(op, groups)?, THREADS, &args)?;
    }
    let args = [
        from,
        means.at(gpu, op, f32)?,
        variances.at(gpu, op, f32)?,
        norm.weight.at(gpu, op, f32)?,
        norm.bias.at(gpu, op, f32)?,
        at,
        count(x.len()),
        channels_arg.into(),
        groups_arg.into(),
        norm.eps.into(),
        function.into(),
    ];
    gpu.launch("group_apply", items(op, x.len())?, THREADS, &args)?;
    Ok(out)
}
