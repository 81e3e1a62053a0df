//! Sums and products, element by element.

use super::activation::{LaneFn, map};
use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Tensor, gpu};

/// a + b, of one shape.
pub fn add(cx: &Cx, a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    need(a.shape() == b.shape(), "add", "both sides have one shape", &[a.shape(), b.shape()])?;
    zip::<Add>(cx, "add", a, b)
}

/// a * b, of one shape.
pub fn mul(cx: &Cx, a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    need(a.shape() == b.shape(), "mul", "both sides have one shape", &[a.shape(), b.shape()])?;
    zip::<Mul>(cx, "mul", a, b)
}

/// Adds the vector `b` to every row of `x`.
pub fn add_channels(cx: &Cx, x: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    channels_fit("add_channels", x, b)?;
    zip::<Add>(cx, "add_channels", x, b)
}

/// Multiplies every row of `x` with the vector `b`.
pub fn mul_channels(cx: &Cx, x: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    channels_fit("mul_channels", x, b)?;
    zip::<Mul>(cx, "mul_channels", x, b)
}

/// x * factor.
pub fn scale(cx: &Cx, x: &Tensor, factor: f32) -> Result<Tensor, KernelError> {
    match cx.gpu() {
        Some(gpu) => gpu::ops::scale(gpu, x, factor),
        None => map(cx, "scale", x, Scale(factor)),
    }
}

fn channels_fit(op: &'static str, x: &Tensor, b: &Tensor) -> Result<(), KernelError> {
    let fits = b.shape().rank() == 1 && b.len() == x.shape().width();
    need(fits, op, "the vector is as long as a row", &[x.shape(), b.shape()])
}

/// `b` has as many rows as `a`, or one for all.
fn zip<F: PairFn>(cx: &Cx, op: &'static str, a: &Tensor, b: &Tensor) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::zip(gpu, op, F::CUDA, a, b);
    }
    let cpu = cx.cpu_for(op)?;
    let one_row = b.len() != a.len();
    let kernel = Zip::<F> { a: a.f32s()?, b: b.f32s()?, one_row, width: a.shape().width(), function: F::default() };
    Tensor::written(a.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

trait PairFn: Sync + Default {
    /// The CUDA kernel.
    const CUDA: &'static str;
    fn lanes<I: Isa>(&self, isa: I, a: I::V, b: I::V) -> I::V;
}

#[derive(Default)]
struct Add;
#[derive(Default)]
struct Mul;
struct Scale(f32);

impl PairFn for Add {
    const CUDA: &'static str = "add";

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, a: I::V, b: I::V) -> I::V {
        isa.add(a, b)
    }
}

impl PairFn for Mul {
    const CUDA: &'static str = "mul";

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, a: I::V, b: I::V) -> I::V {
        isa.mul(a, b)
    }
}

impl LaneFn for Scale {
    const COST: usize = 1;
    const CUDA: u32 = 0;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        isa.mul(x, isa.splat(self.0))
    }
}

struct Zip<'a, F> {
    a: &'a [f32],
    b: &'a [f32],
    one_row: bool,
    width: usize,
    function: F,
}

impl<F: PairFn> RowKernel for Zip<'_, F> {
    const COST: usize = 1;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let at = if self.one_row { 0 } else { row * self.width };
        let left = self.a[row * self.width..][..self.width].chunks(LANES);
        let right = self.b[at..][..self.width].chunks(LANES);
        for ((a, b), out) in left.zip(right).zip(out.chunks_mut(LANES)) {
            let v = self.function.lanes(isa, isa.load_part(a, 0.0), isa.load_part(b, 0.0));
            isa.store_part(v, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{on_every_tier, random, rows_do_not_see_their_batch, same_bits};

    #[test]
    fn sums_and_products_are_exact_in_every_element() {
        let (a, b, v) = (random(1, [3, 4, 21]), random(2, [3, 4, 21]), random(3, [21]));
        let (xs, ys, vs) = (a.f32s().unwrap(), b.f32s().unwrap(), v.f32s().unwrap());
        let paired = |f: fn(f32, f32) -> f32| -> Vec<f32> { xs.iter().zip(ys).map(|(x, y)| f(*x, *y)).collect() };
        let by_channel =
            |f: fn(f32, f32) -> f32| -> Vec<f32> { xs.iter().enumerate().map(|(i, x)| f(*x, vs[i % 21])).collect() };
        on_every_tier(|cx| {
            same_bits(add(cx, &a, &b).unwrap().f32s().unwrap(), &paired(|x, y| x + y));
            same_bits(mul(cx, &a, &b).unwrap().f32s().unwrap(), &paired(|x, y| x * y));
            same_bits(add_channels(cx, &a, &v).unwrap().f32s().unwrap(), &by_channel(|x, y| x + y));
            same_bits(mul_channels(cx, &a, &v).unwrap().f32s().unwrap(), &by_channel(|x, y| x * y));
            let halves: Vec<f32> = xs.iter().map(|x| x * 0.3).collect();
            same_bits(scale(cx, &a, 0.3).unwrap().f32s().unwrap(), &halves);
            rows_do_not_see_their_batch(21, |x| add_channels(cx, x, &v).unwrap());
        });
    }

    #[test]
    fn unlike_shapes_are_refused() {
        let cx = Cx::with_threads(1).unwrap();
        assert!(add(&cx, &random(1, [2, 3]), &random(2, [3, 2])).is_err());
        assert!(mul_channels(&cx, &random(1, [2, 3]), &random(2, [2])).is_err());
        assert!(add_channels(&cx, &random(1, [2, 3]), &random(2, [2, 3])).is_err());
    }
}
