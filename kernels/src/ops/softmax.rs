//! Softmax and its logarithm, row by row.

use crate::cx::RowKernel;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Tensor, gpu, maths};

/// e^x / sum(e^x) of every row. An entry of minus infinity gets exactly 0.
pub fn softmax(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    rowwise::<Probabilities>(cx, "softmax", x)
}

/// x - ln(sum(e^x)) of every row.
pub fn log_softmax(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    rowwise::<Logarithms>(cx, "log_softmax", x)
}

fn rowwise<F: Finish>(cx: &Cx, op: &'static str, x: &Tensor) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::softmax(gpu, op, x);
    }
    let cpu = cx.cpu_for(op)?;
    let kernel = Softmax::<F> { x: x.f32s()?, width: x.shape().width(), finish: F::default() };
    Tensor::written(x.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

/// How a row ends, once its maximum and the sum of its exponentials are known.
trait Finish: Sync + Default {
    /// Writes `out`, which holds the exponentials.
    fn finish<I: Isa>(&self, isa: I, x: &[f32], ends: (f32, f32), out: &mut [f32]);
}

#[derive(Default)]
struct Probabilities;
#[derive(Default)]
struct Logarithms;

impl Finish for Probabilities {
    #[inline(always)]
    fn finish<I: Isa>(&self, isa: I, _x: &[f32], (_, sum): (f32, f32), out: &mut [f32]) {
        let inverse = isa.splat(1.0 / sum);
        for out in out.chunks_mut(LANES) {
            isa.store_part(isa.mul(isa.load_part(out, 0.0), inverse), out);
        }
    }
}

impl Finish for Logarithms {
    #[inline(always)]
    fn finish<I: Isa>(&self, isa: I, x: &[f32], (most, sum): (f32, f32), out: &mut [f32]) {
        let (most, log) = (isa.splat(most), isa.splat(sum.ln()));
        for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            isa.store_part(isa.sub(isa.sub(isa.load_part(x, 0.0), most), log), out);
        }
    }
}

struct Softmax<'a, F> {
    x: &'a [f32],
    width: usize,
    finish: F,
}

impl<F: Finish> RowKernel for Softmax<'_, F> {
    const COST: usize = 6;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * self.width..][..self.width];
        let mut most = isa.splat(f32::NEG_INFINITY);
        for part in x.chunks(LANES) {
            most = isa.max(most, isa.load_part(part, f32::NEG_INFINITY));
        }
        let most = isa.greatest(most);
        let (middle, mut sum) = (isa.splat(most), isa.splat(0.0));
        for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let e = maths::exp(isa, isa.sub(isa.load_part(x, f32::NEG_INFINITY), middle));
            sum = isa.add(sum, e);
            isa.store_part(e, out);
        }
        self.finish.finish(isa, x, (most, isa.sum(sum)), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, on_every_tier, random, rows_do_not_see_their_batch};

    #[test]
    fn softmax_and_its_logarithm_follow_their_definitions() {
        for width in [1, 16, 33, 100] {
            let x = random(1, [6, width]);
            let rows = x.f32s().unwrap().chunks(width);
            let logs: Vec<f64> = rows
                .flat_map(|row| {
                    let sum: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
                    row.iter().map(move |&v| f64::from(v) - sum.ln())
                })
                .collect();
            let want: Vec<f32> = logs.iter().map(|&l| l as f32).collect();
            let shares: Vec<f32> = logs.iter().map(|&l| l.exp() as f32).collect();
            on_every_tier(|cx| {
                close(log_softmax(cx, &x).unwrap().f32s().unwrap(), &want, 2e-6);
                close(softmax(cx, &x).unwrap().f32s().unwrap(), &shares, 1e-6);
                rows_do_not_see_their_batch(width, |x| softmax(cx, x).unwrap());
                rows_do_not_see_their_batch(width, |x| log_softmax(cx, x).unwrap());
            });
        }
    }

    #[test]
    fn masked_entries_get_nothing() {
        let x = Tensor::from_f32(vec![3.0, f32::NEG_INFINITY, 3.0], [1, 3]).unwrap();
        on_every_tier(|cx| assert_eq!(softmax(cx, &x).unwrap().f32s().unwrap(), [0.5, 0.0, 0.5]));
    }
}
