//! Functions of sixteen lanes: exp and what is made of it. The same bits for the same number, whatever lane it is in.

use crate::isa::{Isa, LANES};

const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Pi / 2 in parts of so few bits that their products with the number of quarter turns are exact.
const QUARTER_HIGH: f32 = 1.570_312_5;
const QUARTER_MIDDLE: f32 = 4.837_513e-4;
const QUARTER_LOW: f32 = 7.549_79e-8;
/// The least power of two that [`exp2_below`] returns.
const EXP2_LEAST: f32 = -100.0;
/// Below this, exp is flushed to zero (it would be 2.4e-38).
const EXP_LOW: f32 = -86.6;
/// Above this, exp is infinite.
const EXP_HIGH: f32 = 88.722_84;

/// e^x to about 1e-7, relative.
#[inline(always)]
pub(crate) fn exp<I: Isa>(isa: I, x: I::V) -> I::V {
    let (low, high) = (isa.splat(EXP_LOW), isa.splat(EXP_HIGH));
    let (p, n) = exp_parts(isa, isa.min(high, isa.max(low, x)));
    // 2^n may be one step too far for a float where the result is not.
    let scaled = isa.mul(isa.mul(p, isa.pow2(isa.sub(n, isa.splat(1.0)))), isa.splat(2.0));
    let capped = isa.where_lt(high, x, isa.splat(f32::INFINITY), scaled);
    isa.where_lt(x, low, isa.splat(0.0), capped)
}

/// 2^x of what is not above zero, to about 1e-7, relative; never below 2^-100, of minus infinity neither: what is multiplied
/// with it stays far from the numbers that processors are slow with.
#[inline(always)]
pub(crate) fn exp2_below<I: Isa>(isa: I, x: I::V) -> I::V {
    let x = isa.max(isa.splat(EXP2_LEAST), x);
    let n = isa.round(x);
    let r = isa.sub(x, n);
    let mut p = isa.splat(1.535_336_2e-4);
    for c in [1.339_887_5e-3, 9.618_437e-3, 5.550_332_4e-2, 0.240_226_48, std::f32::consts::LN_2, 1.0] {
        p = isa.fma(p, r, isa.splat(c));
    }
    isa.mul(p, isa.pow2(n))
}

/// e^x is the first times two to the second.
#[inline(always)]
fn exp_parts<I: Isa>(isa: I, x: I::V) -> (I::V, I::V) {
    let n = isa.round(isa.mul(x, isa.splat(std::f32::consts::LOG2_E)));
    let r = isa.fma(n, isa.splat(-LN_2_HIGH), x);
    let r = isa.fma(n, isa.splat(-LN_2_LOW), r);
    let mut p = isa.splat(1.0 / 5_040.0);
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = isa.fma(p, r, isa.splat(c));
    }
    (p, n)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(isa: I, x: I::V) -> I::V {
    let one = isa.splat(1.0);
    isa.div(one, isa.add(one, exp(isa, isa.sub(isa.splat(0.0), x))))
}

/// How many quarter turns are nearest to an angle, and the angle that is left: exact for magnitudes up to ten thousand;
/// beyond, the turns themselves are rounded.
#[inline(always)]
fn quarter_turns<I: Isa>(isa: I, x: I::V) -> (I::V, I::V) {
    let n = isa.round(isa.mul(x, isa.splat(std::f32::consts::FRAC_2_PI)));
    let r = isa.fma(n, isa.splat(-QUARTER_HIGH), x);
    let r = isa.fma(n, isa.splat(-QUARTER_MIDDLE), r);
    (n, isa.fma(n, isa.splat(-QUARTER_LOW), r))
}

/// The sine of an eighth of a turn at most.
#[inline(always)]
fn sin_near_zero<I: Isa>(isa: I, r: I::V, square: I::V) -> I::V {
    let mut p = isa.splat(2.755_731_9e-6);
    for c in [-1.984_127e-4, 8.333_333e-3, -0.166_666_67, 1.0] {
        p = isa.fma(p, square, isa.splat(c));
    }
    isa.mul(p, r)
}

/// sin(x)^2 to about 1e-7, for magnitudes as in [`quarter_turns`].
#[inline(always)]
pub(crate) fn sin_squared<I: Isa>(isa: I, x: I::V) -> I::V {
    let (half, one) = (isa.splat(0.5), isa.splat(1.0));
    let (n, r) = quarter_turns(isa, x);
    let sin = sin_near_zero(isa, r, isa.mul(r, r));
    let sin = isa.mul(sin, sin);
    // Half turns change the sign alone, which the square does not show; a quarter turn more makes it the cosine's.
    let odd = isa.fma(isa.round(isa.mul(n, half)), isa.splat(-2.0), n);
    isa.where_lt(isa.mul(odd, odd), half, sin, isa.sub(one, sin))
}

/// sin(x) and cos(x) to about 1e-7, absolutely, for magnitudes as in [`quarter_turns`].
#[inline(always)]
pub(crate) fn sin_cos<I: Isa>(isa: I, x: I::V) -> (I::V, I::V) {
    let (zero, half, one) = (isa.splat(0.0), isa.splat(0.5), isa.splat(1.0));
    let (n, r) = quarter_turns(isa, x);
    let square = isa.mul(r, r);
    let sin = sin_near_zero(isa, r, square);
    let mut p = isa.splat(2.480_158_7e-5);
    for c in [-1.388_888_9e-3, 4.166_666_7e-2, -0.5, 1.0] {
        p = isa.fma(p, square, isa.splat(c));
    }
    // Quarter turns beyond whole ones, from -2 to 2: odd ones exchange the two, some change a sign.
    let rest = isa.fma(isa.round(isa.mul(n, isa.splat(0.25))), isa.splat(-4.0), n);
    let odd = isa.sub(isa.mul(rest, rest), one);
    let odd = isa.mul(odd, odd);
    let (a, b) = (isa.where_lt(odd, half, p, sin), isa.where_lt(odd, half, sin, p));
    let (minus_a, minus_b) = (isa.sub(zero, a), isa.sub(zero, b));
    let a = isa.where_lt(rest, isa.splat(-0.5), minus_a, isa.where_lt(isa.splat(1.5), rest, minus_a, a));
    let b = isa.where_lt(half, rest, minus_b, isa.where_lt(rest, isa.splat(-1.5), minus_b, b));
    (a, b)
}

/// tanh(x) to about 2e-7, absolutely.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(isa: I, x: I::V) -> I::V {
    isa.fma(sigmoid(isa, isa.add(x, x)), isa.splat(2.0), isa.splat(-1.0))
}

/// ln(x) of positive, normal numbers to about 1e-7, relative to the larger of it and 1.
#[inline(always)]
pub(crate) fn ln<I: Isa>(isa: I, x: [f32; LANES]) -> I::V {
    /// The bits of the root of a half: mantissas lie between it and the root of two.
    const ROOT: u32 = 0x3f35_04f3;
    let (mut exponent, mut mantissa) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        let bits = x[lane].to_bits().wrapping_sub(ROOT);
        exponent[lane] = (bits.cast_signed() >> 23) as f32;
        mantissa[lane] = f32::from_bits((bits & 0x007f_ffff) + ROOT);
    }
    let (e, f) = (isa.load(&exponent), isa.sub(isa.load(&mantissa), isa.splat(1.0)));
    // ln(1 + f) = 2 artanh(s), s = f / (2 + f).
    let s = isa.div(f, isa.add(isa.splat(2.0), f));
    let square = isa.mul(s, s);
    let mut p = isa.splat(2.0 / 11.0);
    for c in [2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        p = isa.fma(p, square, isa.splat(c));
    }
    isa.fma(e, isa.splat(LN_2_HIGH), isa.fma(e, isa.splat(LN_2_LOW), isa.mul(s, p)))
}

/// Where the error function is one, to a float.
const ERF_ONE: f32 = 3.925;
/// The error function is x p(x^2) / q(x^2) below [`ERF_ONE`]: coefficients from the highest power on, fitted to the least
/// greatest difference, which is 2e-8 before rounding.
const ERF_P: [f32; 6] =
    [1.974_823_4e-6, 2.880_413_4e-4, 4.003_657_5e-3, 5.346_751_6e-2, 0.196_249_3, std::f32::consts::FRAC_2_SQRT_PI];
const ERF_Q: [f32; 6] = [3.748_079e-5, 1.216_362_1e-3, 1.544_444_7e-2, 0.116_476_56, 0.507_252_6, 1.0];

/// The error function to 4e-7, absolutely.
#[inline(always)]
pub(crate) fn erf<I: Isa>(isa: I, x: I::V) -> I::V {
    let (bound, low) = (isa.splat(ERF_ONE), isa.splat(-ERF_ONE));
    let held = isa.min(bound, isa.max(low, x));
    let square = isa.mul(held, held);
    let (mut p, mut q) = (isa.splat(ERF_P[0]), isa.splat(ERF_Q[0]));
    for (&of_p, &of_q) in ERF_P[1..].iter().zip(&ERF_Q[1..]) {
        (p, q) = (isa.fma(p, square, isa.splat(of_p)), isa.fma(q, square, isa.splat(of_q)));
    }
    let value = isa.div(isa.mul(held, p), q);
    let value = isa.where_lt(bound, x, isa.splat(1.0), value);
    isa.where_lt(x, low, isa.splat(-1.0), value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::on_every_tier;
    use crate::isa::Kernel;

    /// Runs all three functions on sixteen numbers.
    struct All([f32; LANES]);

    impl Kernel for All {
        type Out = [[f32; LANES]; 3];

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Self::Out {
            let x = isa.load(&self.0);
            [isa.lanes(exp(isa, x)), isa.lanes(sigmoid(isa, x)), isa.lanes(erf(isa, x))]
        }
    }

    /// erf in f64, by the series whose terms all have one sign.
    fn erf_f64(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        let (mut term, mut sum) = (x, x);
        for n in 0..200 {
            term *= 2.0 * x * x / f64::from(2 * n + 3);
            sum += term;
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp()
    }

    #[test]
    fn exp_sigmoid_and_erf_follow_their_f64_references() {
        on_every_tier(|cx| {
            let cpu = cx.cpu_for("maths").unwrap();
            for step in -5_500..5_500 {
                let x: [f32; LANES] = std::array::from_fn(|i| (step * 16 + i as i32) as f32 / 1_000.0);
                let [exps, sigmoids, erfs] = cpu.launch(All(x));
                for i in 0..LANES {
                    let wide = f64::from(x[i]);
                    let relative = (f64::from(exps[i]) / wide.exp() - 1.0).abs();
                    assert!(x[i] < EXP_LOW || relative < 2.5e-7, "exp({}) off by {relative:e}", x[i]);
                    let off = f64::from(sigmoids[i]) - 1.0 / (1.0 + (-wide).exp());
                    assert!(off.abs() < 2e-7, "sigmoid({}) off by {off:e}", x[i]);
                    let off = f64::from(erfs[i]) - erf_f64(wide);
                    assert!(off.abs() < 4e-7, "erf({}) off by {off:e}", x[i]);
                }
            }
        });
    }

    struct Below([f32; LANES]);

    impl Kernel for Below {
        type Out = [f32; LANES];

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Self::Out {
            isa.lanes(exp2_below(isa, isa.load(&self.0)))
        }
    }

    #[test]
    fn powers_of_two_below_one_follow_their_f64_reference() {
        on_every_tier(|cx| {
            let cpu = cx.cpu_for("maths").unwrap();
            for step in 0..8_000 {
                let x: [f32; LANES] = std::array::from_fn(|i| -((step * 16 + i) as f32) / 1_015.0);
                let got = cpu.launch(Below(x));
                for (got, x) in got.into_iter().zip(x) {
                    let relative = (f64::from(got) / f64::from(x).exp2() - 1.0).abs();
                    assert!(x < EXP2_LEAST || relative < 1.5e-7, "2^{x} off by {relative:e}");
                }
            }
            let mut ends = [0.0; LANES];
            ends[..5].copy_from_slice(&[-0.0, EXP2_LEAST, -127.5, f32::NEG_INFINITY, f32::NAN]);
            let got = cpu.launch(Below(ends));
            let least = EXP2_LEAST.exp2();
            assert_eq!((got[0], &got[1..4], got[5]), (1.0, &[least; 3][..], 1.0));
            assert!(got[4].is_nan());
        });
    }

    /// sin^2, sin, cos, tanh, ln of sixteen numbers.
    struct Others([f32; LANES]);

    impl Kernel for Others {
        type Out = [[f32; LANES]; 5];

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Self::Out {
            let x = isa.load(&self.0);
            let (sin, cos) = sin_cos(isa, x);
            let ln = ln(isa, self.0.map(f32::abs));
            [sin_squared(isa, x), sin, cos, tanh(isa, x), ln].map(|v| isa.lanes(v))
        }
    }

    #[test]
    fn sines_tanh_and_ln_follow_their_f64_references() {
        on_every_tier(|cx| {
            for step in -3_000..3_000 {
                let scale = if step % 2 == 0 { 101.0 } else { 7.7 };
                let x: [f32; LANES] = std::array::from_fn(|i| (step * 16 + i as i32) as f32 / scale + 1e-3);
                let [squares, sins, cosines, tanhs, lns] = cx.cpu_for("maths").unwrap().launch(Others(x));
                for i in 0..LANES {
                    let wide = f64::from(x[i]);
                    let off = |got: f32, want: f64| (f64::from(got) - want).abs();
                    assert!(off(squares[i], wide.sin().powi(2)) < 3e-7, "sin({wide})^2");
                    assert!(off(sins[i], wide.sin()) < 3e-7, "sin({wide}): {}", sins[i]);
                    assert!(off(cosines[i], wide.cos()) < 3e-7, "cos({wide}): {}", cosines[i]);
                    assert!(off(tanhs[i], wide.tanh()) < 4e-7, "tanh({wide}): {}", tanhs[i]);
                    let want = wide.abs().ln();
                    assert!(off(lns[i], want) < 2e-7 * want.abs().max(1.0), "ln({wide}): {}", lns[i]);
                }
            }
        });
    }

    #[test]
    fn the_logarithm_of_the_smallest_normal_number_is_right() {
        let tiny = [f32::MIN_POSITIVE; LANES];
        on_every_tier(|cx| {
            let [.., ln] = cx.cpu_for("maths").unwrap().launch(Others(tiny));
            assert!((f64::from(ln[0]) - f64::from(f32::MIN_POSITIVE).ln()).abs() < 1e-5);
        });
    }

    #[test]
    fn the_ends_of_the_line_are_exact() {
        on_every_tier(|cx| {
            let mut x = [0.0; LANES];
            x[..5].copy_from_slice(&[f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 88.7, 88.8]);
            let [exps, sigmoids, erfs] = cx.cpu_for("maths").unwrap().launch(All(x));
            assert_eq!((exps[0], exps[1], exps[4], exps[5]), (0.0, f32::INFINITY, f32::INFINITY, 1.0));
            assert!(exps[2].is_nan() && sigmoids[2].is_nan() && erfs[2].is_nan());
            assert!((f64::from(exps[3]) / 88.7f32.exp() as f64 - 1.0).abs() < 1e-6);
            assert_eq!((sigmoids[0], sigmoids[1], erfs[0], erfs[1]), (0.0, 1.0, -1.0, 1.0));
        });
    }
}
