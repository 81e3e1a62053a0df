//! Elementwise operations, norms, softmax: rows by themselves.

use mstar_kernels::{Cx, KernelError, Tensor, ops};

use super::{Case, RowCase, case, numbers, random};

type Unary = fn(&Cx, &Tensor) -> Result<Tensor, KernelError>;

const UNARY: [(&str, Unary, f32); 10] = [
    ("relu", ops::relu, 0.0),
    ("sigmoid", ops::sigmoid, 1e-6),
    ("silu", ops::silu, 2e-6),
    ("sin", ops::sin, 4e-7),
    ("gelu_erf", ops::gelu_erf, 2e-6),
    ("gelu_tanh", ops::gelu_tanh, 2e-6),
    ("softmax", ops::softmax, 1e-6),
    ("log_softmax", ops::log_softmax, 4e-6),
    ("scale", |cx, x| ops::scale(cx, x, 0.3), 0.0),
    ("bf16", |_, x| x.to_bf16()?.to_f32(), 0.0),
];

/// Widths below, at and beyond warps, vectors and blocks.
const WIDTHS: [usize; 6] = [1, 31, 64, 77, 300, 1_100];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in WIDTHS {
        for (name, op, tolerance) in UNARY {
            cases.push(case(format!("{name} {width}"), tolerance, move |cx| {
                let x = ops::scale(cx, &random(1, [5, width]).on(cx)?, 6.0)?;
                numbers(&op(cx, &x)?)
            }));
        }
        cases.push(case(format!("add, mul, silu_mul {width}"), 2e-6, move |cx| {
            let (a, b) = (random(1, [3, 2, width]).on(cx)?, random(2, [3, 2, width]).on(cx)?);
            let v = random(3, [width]).on(cx)?;
            let sum = ops::add_channels(cx, &ops::add(cx, &a, &b)?, &v)?;
            let product = ops::mul_channels(cx, &ops::mul(cx, &a, &b)?, &v)?;
            numbers(&ops::silu_mul(cx, &sum, &product)?)
        }));
        cases.push(case(format!("silu_mul_halves, snake {width}"), 2e-6, move |cx| {
            let halves = ops::silu_mul_halves(cx, &random(1, [5, 2 * width]).on(cx)?)?;
            // Like the weights of codecs: some are small, none is zero.
            let alpha = ops::scale(cx, &random(2, [width]).on(cx)?, 2.0)?;
            let alpha = ops::add(cx, &alpha, &Tensor::from_f32(vec![2.1; width], [width])?.on(cx)?)?;
            let snake = ops::snake(cx, &ops::scale(cx, &random(3, [5, width]).on(cx)?, 4.0)?, &alpha)?;
            Ok([numbers(&halves)?, numbers(&snake)?].concat())
        }));
        for (gain, plus) in [(ops::Gain::Weight, "w"), (ops::Gain::OnePlusWeight, "1 + w")] {
            cases.push(case(format!("rms_norm {width} {plus}"), 4e-6, move |cx| {
                let (x, w) = (random(1, [5, width]).on(cx)?, random(2, [width]).on(cx)?);
                numbers(&ops::rms_norm(cx, &x, &w, 1e-5, gain)?)
            }));
        }
        for (scaled, moved) in [(false, false), (true, false), (false, true), (true, true)] {
            cases.push(case(format!("layer_norm {width} {scaled} {moved}"), 8e-6, move |cx| {
                let (w, b) = (random(2, [width]).on(cx)?, random(3, [width]).on(cx)?);
                let x = random(1, [5, width]).on(cx)?;
                numbers(&ops::layer_norm(cx, &x, scaled.then_some(&w), moved.then_some(&b), 1e-2)?)
            }));
        }
    }
    cases.push(case("the ends of the line".to_owned(), 0.0, |cx| {
        let ends = vec![f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 88.8, -104.0, 0.0, -0.0];
        let x = Tensor::from_f32(ends, [1, 7])?.on(cx)?;
        let outs = [ops::sigmoid(cx, &x)?, ops::relu(cx, &x)?, x.to_bf16()?.to_f32()?];
        outs.iter().map(numbers).collect::<Result<Vec<_>, _>>().map(|all| all.concat())
    }));
    cases
}

pub(super) fn row_cases() -> Vec<RowCase> {
    let mut cases: Vec<RowCase> =
        UNARY.into_iter().map(|(name, op, _)| RowCase { name, width: 77, run: Box::new(op) }).collect();
    cases.push(RowCase {
        name: "rms_norm",
        width: 300,
        run: Box::new(|cx, x| ops::rms_norm(cx, x, &random(2, [300]).on(cx)?, 1e-5, ops::Gain::Weight)),
    });
    cases.push(RowCase {
        name: "layer_norm",
        width: 300,
        run: Box::new(|cx, x| ops::layer_norm(cx, x, Some(&random(2, [300]).on(cx)?), None, 1e-5)),
    });
    cases
}
