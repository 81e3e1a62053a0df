//! Activations, element by element.

use crate::cx::RowKernel;
use crate::error::need;
use crate::isa::{Isa, LANES};
use crate::{Cx, KernelError, Shape, Tensor, gpu, maths};

/// x * Phi(x), with the error function.
pub fn gelu_erf(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "gelu_erf", x, GeluErf)
}

/// The tanh approximation of [`gelu_erf`].
pub fn gelu_tanh(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "gelu_tanh", x, GeluTanh)
}

/// max(x, 0).
pub fn relu(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "relu", x, Relu)
}

/// 1 / (1 + e^-x).
pub fn sigmoid(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "sigmoid", x, Sigmoid)
}

/// sin(x) to about 1e-7, absolutely, for magnitudes up to ten thousand.
pub fn sin(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "sin", x, Sine)
}

/// x * sigmoid(x).
pub fn silu(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    map(cx, "silu", x, Silu)
}

/// silu(gate) * up.
pub fn silu_mul(cx: &Cx, gate: &Tensor, up: &Tensor) -> Result<Tensor, KernelError> {
    need(gate.shape() == up.shape(), "silu_mul", "both sides have one shape", &[gate.shape(), up.shape()])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::silu_mul(gpu, gate, up);
    }
    let cpu = cx.cpu_for("silu_mul")?;
    let kernel = SiluMul { gate: gate.f32s()?, up: up.f32s()?, width: gate.shape().width() };
    Tensor::written(gate.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

/// [`silu_mul`] of the first and the second half of each row: what one layer that is gate and up at once gives.
pub fn silu_mul_halves(cx: &Cx, x: &Tensor) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::silu_mul_halves(gpu, x, SiluMulHalves::width(x)?);
    }
    let cpu = cx.cpu_for("silu_mul_halves")?;
    let kernel = SiluMulHalves::new(x)?;
    Tensor::written(x.shape().with_width(kernel.width), |out| cpu.rows(out, kernel.width, &kernel))
}

/// x + sin(alpha x)^2 / (alpha + 1e-9), with an `alpha` per column: the activation of neural audio codecs.
pub fn snake(cx: &Cx, x: &Tensor, alpha: &Tensor) -> Result<Tensor, KernelError> {
    let width = x.shape().width();
    let fits = x.shape().rank() > 0 && alpha.shape() == Shape::from([width]);
    need(fits, "snake", "alpha is as long as a row", &[x.shape(), alpha.shape()])?;
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::snake(gpu, x, alpha);
    }
    let cpu = cx.cpu_for("snake")?;
    let alpha = alpha.f32s()?;
    let inverse: Vec<f32> = alpha.iter().map(|alpha| 1.0 / (alpha + 1e-9)).collect();
    let kernel = Snake { x: x.f32s()?, alpha, inverse: &inverse };
    Tensor::written(x.shape(), |out| cpu.rows(out, width, &kernel))
}

/// A function of one number, as lanes.
pub(crate) trait LaneFn: Sync {
    /// As [`RowKernel::COST`].
    const COST: usize;
    /// The function's number in maths.cuh.
    const CUDA: u32;
    /// Implementations are `#[inline(always)]`.
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V;
}

/// Applies a function to every element.
pub(crate) fn map<F: LaneFn>(cx: &Cx, op: &'static str, x: &Tensor, function: F) -> Result<Tensor, KernelError> {
    if let Some(gpu) = cx.gpu() {
        return gpu::ops::activate(gpu, op, F::CUDA, x);
    }
    let cpu = cx.cpu_for(op)?;
    let kernel = Map { x: x.f32s()?, width: x.shape().width(), function };
    Tensor::written(x.shape(), |out| cpu.rows(out, kernel.width, &kernel))
}

// --- functions ---

pub(crate) struct GeluErf;
pub(crate) struct GeluTanh;
pub(crate) struct Relu;
pub(crate) struct Silu;
struct Sigmoid;
struct Sine;

impl LaneFn for GeluErf {
    const COST: usize = 4;
    const CUDA: u32 = 1;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        let phi = maths::erf(isa, isa.mul(x, isa.splat(std::f32::consts::FRAC_1_SQRT_2)));
        isa.mul(isa.mul(x, isa.splat(0.5)), isa.add(phi, isa.splat(1.0)))
    }
}

impl LaneFn for GeluTanh {
    const COST: usize = 5;
    const CUDA: u32 = 2;

    /// 0.5 * (1 + tanh(y)) is sigmoid(2y).
    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        const TWICE_ROOT: f32 = 1.595_769; // 2 * sqrt(2 / pi)
        let cubic = isa.fma(isa.mul(x, x), isa.splat(0.044_715), isa.splat(1.0));
        let y = isa.mul(isa.mul(x, cubic), isa.splat(TWICE_ROOT));
        isa.mul(x, maths::sigmoid(isa, y))
    }
}

impl LaneFn for Relu {
    const COST: usize = 1;
    const CUDA: u32 = 3;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        isa.max(isa.splat(0.0), x)
    }
}

impl LaneFn for Silu {
    const COST: usize = 5;
    const CUDA: u32 = 4;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        isa.mul(x, maths::sigmoid(isa, x))
    }
}

impl LaneFn for Sigmoid {
    const COST: usize = 5;
    const CUDA: u32 = 5;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        maths::sigmoid(isa, x)
    }
}

impl LaneFn for Sine {
    const COST: usize = 5;
    const CUDA: u32 = 6;

    #[inline(always)]
    fn lanes<I: Isa>(&self, isa: I, x: I::V) -> I::V {
        maths::sin_cos(isa, x).0
    }
}

// --- row kernels ---

struct Map<'a, F> {
    x: &'a [f32],
    width: usize,
    function: F,
}

impl<F: LaneFn> RowKernel for Map<'_, F> {
    const COST: usize = F::COST;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * self.width..][..self.width];
        for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            isa.store_part(self.function.lanes(isa, isa.load_part(x, 0.0)), out);
        }
    }
}

struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    width: usize,
}

impl RowKernel for SiluMul<'_> {
    const COST: usize = 6;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let at = row * self.width;
        let gates = self.gate[at..][..self.width].chunks(LANES);
        let ups = self.up[at..][..self.width].chunks(LANES);
        for ((gate, up), out) in gates.zip(ups).zip(out.chunks_mut(LANES)) {
            let gate = Silu.lanes(isa, isa.load_part(gate, 0.0));
            isa.store_part(isa.mul(gate, isa.load_part(up, 0.0)), out);
        }
    }
}

/// [`silu_mul_halves`], row by row.
pub(super) struct SiluMulHalves<'a> {
    x: &'a [f32],
    width: usize,
}

// --- impl SiluMulHalves ---

impl<'a> SiluMulHalves<'a> {
    pub(super) fn new(x: &'a Tensor) -> Result<Self, KernelError> {
        let width = Self::width(x)?;
        Ok(Self { x: x.f32s()?, width })
    }

    /// The length of a half.
    fn width(x: &Tensor) -> Result<usize, KernelError> {
        let even = x.shape().rank() > 0 && x.shape().width().is_multiple_of(2);
        need(even, "silu_mul_halves", "rows have two halves", &[x.shape()])?;
        Ok(x.shape().width() / 2)
    }
}

impl RowKernel for SiluMulHalves<'_> {
    const COST: usize = 6;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let (gate, up) = self.x[row * 2 * self.width..][..2 * self.width].split_at(self.width);
        let halves = SiluMul { gate, up, width: self.width };
        halves.row(isa, 0, out);
    }
}

struct Snake<'a> {
    x: &'a [f32],
    alpha: &'a [f32],
    inverse: &'a [f32],
}

impl RowKernel for Snake<'_> {
    const COST: usize = 4;

    #[inline(always)]
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]) {
        let x = &self.x[row * out.len()..][..out.len()];
        let columns = self.alpha.chunks(LANES).zip(self.inverse.chunks(LANES));
        for ((x, out), (alpha, inverse)) in x.chunks(LANES).zip(out.chunks_mut(LANES)).zip(columns) {
            let x = isa.load_part(x, 0.0);
            let squared = maths::sin_squared(isa, isa.mul(isa.load_part(alpha, 0.0), x));
            isa.store_part(isa.fma(squared, isa.load_part(inverse, 0.0), x), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{close, noise, on_every_tier, random, rows_do_not_see_their_batch};

    fn follows(op: impl Fn(&Cx, &Tensor) -> Result<Tensor, KernelError>, reference: impl Fn(f64) -> f64) {
        let x = Tensor::from_f32(noise(3, 7 * 37).iter().map(|v| v * 6.0).collect(), [7, 37]).unwrap();
        let want: Vec<f32> = x.f32s().unwrap().iter().map(|&v| reference(f64::from(v)) as f32).collect();
        on_every_tier(|cx| {
            close(op(cx, &x).unwrap().f32s().unwrap(), &want, 2e-6);
            rows_do_not_see_their_batch(37, |x| op(cx, x).unwrap());
        });
    }

    #[test]
    fn activations_follow_their_definitions() {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        follows(relu, |x| x.max(0.0));
        follows(sigmoid, logistic);
        follows(silu, |x| x * logistic(x));
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        follows(gelu_tanh, |x| 0.5 * x * (1.0 + inner(x).tanh()));
    }

    #[test]
    fn gelu_meets_known_values() {
        let x = Tensor::from_f32(vec![-3.0, -1.0, 0.0, 0.5, 1.0, 2.0], [6]).unwrap();
        let want = [-0.004_049_694, -0.158_655_25, 0.0, 0.345_731_23, 0.841_344_8, 1.954_499_7];
        on_every_tier(|cx| close(gelu_erf(cx, &x).unwrap().f32s().unwrap(), &want, 1e-6));
    }

    #[test]
    fn silu_mul_is_silu_times_up_and_refuses_unlike_shapes() {
        let (gate, up) = (random(1, [5, 19]), random(2, [5, 19]));
        on_every_tier(|cx| {
            let silus = silu(cx, &gate).unwrap();
            let pairs = silus.f32s().unwrap().iter().zip(up.f32s().unwrap());
            let want: Vec<f32> = pairs.map(|(a, b)| a * b).collect();
            close(silu_mul(cx, &gate, &up).unwrap().f32s().unwrap(), &want, 0.0);
            assert!(silu_mul(cx, &gate, &random(2, [19, 5])).is_err());
        });
    }

    #[test]
    fn halves_of_a_row_are_gate_and_up() {
        let x = random(1, [5, 38]);
        on_every_tier(|cx| {
            let (gate, up) =
                (crate::ops::columns(cx, &x, 0..19).unwrap(), crate::ops::columns(cx, &x, 19..38).unwrap());
            let (whole, apart) = (silu_mul_halves(cx, &x).unwrap(), silu_mul(cx, &gate, &up).unwrap());
            assert_eq!((whole.dims(), whole.bytes()), (apart.dims(), apart.bytes()));
            assert!(silu_mul_halves(cx, &random(2, [2, 3])).is_err());
        });
    }

    #[test]
    fn snake_follows_its_definition() {
        let (x, alpha) = (random(1, [9, 37]), random(2, [37]));
        let alpha = Tensor::from_f32(alpha.f32s().unwrap().iter().map(|a| 1.5 + a).collect(), [37]).unwrap();
        let pairs = x.f32s().unwrap().iter().zip(alpha.f32s().unwrap().iter().cycle());
        let want: Vec<f32> = pairs
            .map(|(&x, &a)| (f64::from(x), f64::from(a)))
            .map(|(x, a)| (x + (a * x).sin().powi(2) / (a + 1e-9)) as f32)
            .collect();
        on_every_tier(|cx| {
            close(snake(cx, &x, &alpha).unwrap().f32s().unwrap(), &want, 1e-6);
            rows_do_not_see_their_batch(37, |x| snake(cx, x, &alpha).unwrap());
            assert!(snake(cx, &x, &random(3, [36])).is_err());
        });
    }
}
