//! Functions of sixteen lanes: exp and what is made of it. The same bits for the same number, whatever lane it is in.

use crate::isa::Isa;

const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Pi / 2 in parts of so few bits that their products with the number of quarter turns are exact.
const QUARTER_HIGH: f32 = 1.570_312_5;
const QUARTER_MIDDLE: f32 = 4.837_513e-4;
const QUARTER_LOW: f32 = 7.549_79e-8;
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

/// [`exp`] of what is not above zero: the same bits in fewer steps.
#[inline(always)]
pub(crate) fn exp_below<I: Isa>(isa: I, x: I::V) -> I::V {
    let low = isa.splat(EXP_LOW);
    let (p, n) = exp_parts(isa, isa.max(low, x));
    isa.where_lt(x, low, isa.splat(0.0), isa.mul(p, isa.pow2(n)))
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

/// sin(x)^2 to about 1e-7, for magnitudes up to ten thousand; beyond, the turns themselves are rounded.
#[inline(always)]
pub(crate) fn sin_squared<I: Isa>(isa: I, x: I::V) -> I::V {
    let (half, one) = (isa.splat(0.5), isa.splat(1.0));
    let n = isa.round(isa.mul(x, isa.splat(std::f32::consts::FRAC_2_PI)));
    let r = isa.fma(n, isa.splat(-QUARTER_HIGH), x);
    let r = isa.fma(n, isa.splat(-QUARTER_MIDDLE), r);
    let r = isa.fma(n, isa.splat(-QUARTER_LOW), r);
    let square = isa.mul(r, r);
    let mut p = isa.splat(2.755_731_9e-6);
    for c in [-1.984_127e-4, 8.333_333e-3, -0.166_666_67, 1.0] {
        p = isa.fma(p, square, isa.splat(c));
    }
    let sin = isa.mul(p, r);
    let sin = isa.mul(sin, sin);
    // Half turns change the sign alone, which the square does not show; a quarter turn more makes it the cosine's.
    let odd = isa.fma(isa.round(isa.mul(n, half)), isa.splat(-2.0), n);
    isa.where_lt(isa.mul(odd, odd), half, sin, isa.sub(one, sin))
}

/// The error function to 4e-7, absolutely: its series near zero, Abramowitz and Stegun's 7.1.26 elsewhere.
#[inline(always)]
pub(crate) fn erf<I: Isa>(isa: I, x: I::V) -> I::V {
    let (zero, one, square) = (isa.splat(0.0), isa.splat(1.0), isa.mul(x, x));
    let size = isa.max(isa.sub(zero, x), x);
    let t = isa.div(one, isa.fma(size, isa.splat(0.327_591_1), one));
    let mut p = isa.splat(1.061_405_4);
    for c in [-1.453_152_1, 1.421_413_7, -0.284_496_72, 0.254_829_6] {
        p = isa.fma(p, t, isa.splat(c));
    }
    let value = isa.sub(one, isa.mul(isa.mul(p, t), exp(isa, isa.sub(zero, square))));
    let far = isa.where_lt(x, zero, isa.sub(zero, value), value);
    let mut p = isa.splat(1.0 / 9_360.0);
    for c in [-1.0 / 1_320.0, 1.0 / 216.0, -1.0 / 42.0, 0.1, -1.0 / 3.0, 1.0] {
        p = isa.fma(p, square, isa.splat(c));
    }
    let near = isa.mul(isa.mul(x, isa.splat(std::f32::consts::FRAC_2_SQRT_PI)), p);
    isa.where_lt(size, isa.splat(0.5), near, far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::on_every_tier;
    use crate::isa::{Kernel, LANES};

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
        type Out = [[f32; LANES]; 2];

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Self::Out {
            let x = isa.load(&self.0);
            [isa.lanes(exp_below(isa, x)), isa.lanes(exp(isa, x))]
        }
    }

    #[test]
    fn what_is_not_above_zero_needs_fewer_steps_for_the_same_bits() {
        on_every_tier(|cx| {
            for step in 0..6_000 {
                let mut x: [f32; LANES] = std::array::from_fn(|i| -((step * 16 + i) as f32) / 1_000.0);
                x[15] = [f32::NEG_INFINITY, f32::NAN, EXP_LOW, -0.0][step % 4];
                let [below, any] = cx.cpu_for("maths").unwrap().launch(Below(x));
                assert_eq!(below.map(f32::to_bits), any.map(f32::to_bits));
            }
        });
    }

    struct SinSquared([f32; LANES]);

    impl Kernel for SinSquared {
        type Out = [f32; LANES];

        #[inline(always)]
        fn run<I: Isa>(self, isa: I) -> Self::Out {
            isa.lanes(sin_squared(isa, isa.load(&self.0)))
        }
    }

    #[test]
    fn sin_squared_follows_its_f64_reference() {
        on_every_tier(|cx| {
            for step in -3_000..3_000 {
                let x: [f32; LANES] = std::array::from_fn(|i| (step * 16 + i as i32) as f32 / 101.0);
                let got = cx.cpu_for("maths").unwrap().launch(SinSquared(x));
                for i in 0..LANES {
                    let want = f64::from(x[i]).sin().powi(2);
                    let off = (f64::from(got[i]) - want).abs();
                    assert!(off < 3e-7, "sin({})^2 off by {off:e}", x[i]);
                }
            }
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
