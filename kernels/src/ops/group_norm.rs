//! Normalisation over groups of channels of a whole image or signal, whose channels lie together.
//!
//! Unlike a row's norm it sees every row: an image is normalised as one, and its bits are those of the image alone.
//! Sums are taken of parts of fixed size, in their order, whatever the threads.

use super::Activation;
use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Shape, Tensor, gpu};

/// Weight and bias per channel, and how channels are grouped.
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm<'a> {
    /// Groups; their number divides that of the channels.
    pub groups: usize,
    /// Multiplied per channel.
    pub weight: &'a Tensor,
    /// Added per channel.
    pub bias: &'a Tensor,
    /// Added to the variance.
    pub eps: f32,
    /// Applied last.
    pub activation: Activation,
}

/// Rows whose sums are taken in one go.
const PART: usize = 64;

/// Normalises `x` of shape `[.., channels]` over all rows and the channels of each group.
pub fn group_norm(cx: &Cx, x: &Tensor, norm: GroupNorm<'_>) -> Result<Tensor, KernelError> {
    let (rows, channels) = (x.shape().height(), x.shape().width());
    let vector = Shape::from([channels]);
    let fits = x.shape().rank() > 1 && norm.weight.shape() == vector && norm.bias.shape() == vector;
    need(fits, "group_norm", "weight and bias are as long as a row", &[x.shape(), norm.weight.shape()])?;
    let whole = norm.groups > 0 && channels.is_multiple_of(norm.groups);
    need(whole, "group_norm", "the groups divide the channels", &[vector, Shape::from([norm.groups])])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::group_norm(gpu, x, norm, norm.activation.on_gpu());
    }
    let cpu = cx.cpu_for("group_norm")?;
    let items = x.f32s()?;
    let (weight, bias) = (norm.weight.f32s()?, norm.bias.f32s()?);
    let width = channels / norm.groups.max(1);
    let mut parts = vec![0.0; rows.div_ceil(PART) * 2 * channels];
    cpu.rows(&mut parts, 2 * channels, &Parts { x: items });
    let (means, variances) = moments(&parts, (rows, channels), norm.groups);
    let middle: Vec<f32> = (0..channels).map(|c| means[c / width] as f32).collect();
    let scale: Vec<f32> = (0..channels).map(|c| weight[c] / (variances[c / width] as f32 + norm.eps).sqrt()).collect();
    let kernel = Apply { x: items, middle: &middle, scale: &scale, bias, activation: norm.activation };
    Tensor::written(x.shape(), |out| cpu.rows(out, channels, &kernel))
}

/// Means and variances of the groups, from the sums of [`Parts`].
fn moments(parts: &[f32], (rows, channels): (usize, usize), groups: usize) -> (Vec<f64>, Vec<f64>) {
    let width = channels / groups.max(1);
    let count = (rows * width) as f64;
    let mut means = vec![0.0; groups];
    for part in parts.chunks_exact((2 * channels).max(1)) {
        for (c, &sum) in part[..channels].iter().enumerate() {
            means[c / width] += f64::from(sum);
        }
    }
    means.iter_mut().for_each(|sum| *sum /= count);
    let mut variances = vec![0.0; groups];
    for (i, part) in parts.chunks_exact((2 * channels).max(1)).enumerate() {
        let (sums, squares) = part.split_at(channels);
        let count = PART.min(rows - i * PART) as f64;
        for (c, (&sum, &square)) in sums.iter().zip(squares).enumerate() {
            // A part's squares are around its own mean.
            let off = f64::from(sum) / count - means[c / width];
            variances[c / width] += f64::from(square) + count * off * off;
        }
    }
    variances.iter_mut().for_each(|sum| *sum /= count);
    (means, variances)
}

/// Per part of the rows, and channel: the sum, and behind those of all channels the sum of the squares around the part's
/// mean. The part is still at hand when its squares are taken.
struct Parts<'a> {
    x: &'a [f32],
}

impl RowKernel for Parts<'_> {
    const COST: usize = PART;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, part: usize, out: &mut [f32]) {
        let (sums, squares) = out.split_at_mut(out.len() / 2);
        let channels = sums.len();
        let x = &self.x[part * PART * channels..];
        let x = &x[..x.len().min(PART * channels)];
        sums.fill(0.0);
        squares.fill(0.0);
        for row in x.chunks_exact(channels) {
            for (sum, x) in sums.chunks_mut(LANES).zip(row.chunks(LANES)) {
                isa.store_part(isa.add(isa.load_part(sum, 0.0), isa.load_part(x, 0.0)), sum);
            }
        }
        let per = isa.splat(1.0 / (x.len() / channels) as f32);
        for row in x.chunks_exact(channels) {
            let places = squares.chunks_mut(LANES).zip(sums.chunks(LANES));
            for ((square, sum), x) in places.zip(row.chunks(LANES)) {
                let mean = isa.mul(isa.load_part(sum, 0.0), per);
                let off = isa.sub(isa.load_part(x, 0.0), mean);
                isa.store_part(isa.fma(off, off, isa.load_part(square, 0.0)), square);
            }
        }
    }
}

struct Apply<'a> {
    x: &'a [f32],
    middle: &'a [f32],
    scale: &'a [f32],
    bias: &'a [f32],
    activation: Activation,
}

impl RowKernel for Apply<'_> {
    const COST: usize = 4;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * out.len()..][..out.len()];
        for (i, (x, out)) in x.chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
            let channels = i * LANES..i * LANES + x.len();
            let off = isa.sub(isa.load_part(x, 0.0), isa.load_part(&self.middle[channels.clone()], 0.0));
            let scale = isa.load_part(&self.scale[channels.clone()], 0.0);
            let v = isa.fma(off, scale, isa.load_part(&self.bias[channels], 0.0));
            isa.store_part(self.activation.lanes(isa, v), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random, threads_do_not_show};

    fn reference(x: &Tensor, norm: GroupNorm<'_>) -> Vec<f32> {
        let (rows, channels) = (x.shape().height(), x.shape().width());
        let (xs, ws, bs) = (x.f32s().unwrap(), norm.weight.f32s().unwrap(), norm.bias.f32s().unwrap());
        let width = channels / norm.groups;
        let mut out = vec![0.0; xs.len()];
        for group in 0..norm.groups {
            let places: Vec<usize> = (0..rows)
                .flat_map(|row| (group * width..(group + 1) * width).map(move |c| row * channels + c))
                .collect();
            let mean = places.iter().map(|&at| f64::from(xs[at])).sum::<f64>() / places.len() as f64;
            let var = places.iter().map(|&at| (f64::from(xs[at]) - mean).powi(2)).sum::<f64>() / places.len() as f64;
            for at in places {
                let normal = (f64::from(xs[at]) - mean) / (var + f64::from(norm.eps)).sqrt();
                let y = normal * f64::from(ws[at % channels]) + f64::from(bs[at % channels]);
                out[at] = if norm.activation == Activation::Silu { y / (1.0 + (-y).exp()) } else { y } as f32;
            }
        }
        out
    }

    #[test]
    fn group_norm_follows_its_definition() {
        for (rows, channels, groups) in [(1, 4, 2), (77, 24, 4), (200, 33, 11), (130, 64, 32)] {
            let x = random(1, [rows, channels]);
            let (weight, bias) = (random(2, [channels]), random(3, [channels]));
            for activation in [Activation::None, Activation::Silu] {
                let norm = GroupNorm { groups, weight: &weight, bias: &bias, eps: 1e-5, activation };
                let want = reference(&x, norm);
                on_every_tier(|cx| close(group_norm(cx, &x, norm).unwrap().f32s().unwrap(), &want, 5e-6));
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let (x, weight, bias) = (random(1, [1_000, 48]), random(2, [48]), random(3, [48]));
        let norm = GroupNorm { groups: 6, weight: &weight, bias: &bias, eps: 1e-5, activation: Activation::None };
        threads_do_not_show(|cx| group_norm(cx, &x, norm).unwrap().bytes().to_vec());
    }

    #[test]
    fn groups_that_do_not_divide_the_channels_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let (x, weight, bias) = (random(1, [3, 8]), random(2, [8]), random(3, [8]));
        let norm = GroupNorm { groups: 3, weight: &weight, bias: &bias, eps: 1e-5, activation: Activation::None };
        assert!(group_norm(&cx, &x, norm).is_err());
        assert!(group_norm(&cx, &x, GroupNorm { groups: 0, ..norm }).is_err());
        assert!(group_norm(&cx, &random(1, [3, 4]), GroupNorm { groups: 2, ..norm }).is_err());
    }
}
