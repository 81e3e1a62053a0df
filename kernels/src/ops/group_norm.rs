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
    let mut partial = vec![0.0; rows.div_ceil(PART) * channels];
    let mut moment = |middle: Option<&[f32]>| -> Vec<f64> {
        cpu.rows(&mut partial, channels, &Parts { x: items, middle });
        let mut sums = vec![0.0; norm.groups];
        for part in partial.chunks_exact(channels.max(1)) {
            for (c, &sum) in part.iter().enumerate() {
                sums[c / width] += f64::from(sum);
            }
        }
        sums.iter().map(|sum| sum / (rows * width) as f64).collect()
    };
    let means = moment(None);
    let middle: Vec<f32> = (0..channels).map(|c| means[c / width] as f32).collect();
    let variances = moment(Some(&middle));
    let scale: Vec<f32> = (0..channels).map(|c| weight[c] / (variances[c / width] as f32 + norm.eps).sqrt()).collect();
    let kernel = Apply { x: items, middle: &middle, scale: &scale, bias, activation: norm.activation };
    Tensor::written(x.shape(), |out| cpu.rows(out, channels, &kernel))
}

/// Per part of the rows and channel: the sum, or that of the squares around the middle.
struct Parts<'a> {
    x: &'a [f32],
    middle: Option<&'a [f32]>,
}

impl RowKernel for Parts<'_> {
    const COST: usize = PART;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, part: usize, out: &mut [f32]) {
        let channels = out.len();
        let rows = self.x[part * PART * channels..].chunks_exact(channels).take(PART);
        for (i, out) in out.chunks_mut(LANES).enumerate() {
            let (at, mut sum) = (i * LANES, isa.splat(0.0));
            for row in rows.clone() {
                let x = isa.load_part(&row[at..][..out.len()], 0.0);
                sum = match self.middle {
                    None => isa.add(sum, x),
                    Some(middle) => {
                        let off = isa.sub(x, isa.load_part(&middle[at..][..out.len()], 0.0));
                        isa.fma(off, off, sum)
                    }
                };
            }
            isa.store_part(sum, out);
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
