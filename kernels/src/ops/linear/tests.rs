//! Linear layers against their definition, on every tier, alone and in batches.

use super::*;
use crate::check::{close, on_every_tier, random, rows_do_not_see_their_batch, same_bits, threads_do_not_show};
use crate::ops;

fn reference(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Vec<f32> {
    let (ws, inputs) = (w.f32s().unwrap(), w.dims()[1]);
    let bias = bias.map(|b| b.f32s().unwrap());
    let row = |x: &[f32]| -> Vec<f32> {
        let sums = ws.chunks(inputs).map(|w| x.iter().zip(w).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>());
        sums.enumerate().map(|(n, sum)| (sum + bias.map_or(0.0, |b| f64::from(b[n]))) as f32).collect()
    };
    x.f32s().unwrap().chunks(inputs).flat_map(row).collect()
}

const ALL: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::Q8, Precision::Q4];

#[test]
fn linear_follows_its_definition_for_any_shape() {
    for (rows, inputs, outputs) in [(1, 1, 1), (3, 7, 5), (13, 64, 48), (40, 33, 70), (65, 128, 33)] {
        let (x, w, b) = (random(1, [rows, inputs]), random(2, [outputs, inputs]), random(3, [outputs]));
        let rounded = w.to_bf16().unwrap();
        let narrow_x = x.to_bf16().unwrap().to_f32().unwrap();
        on_every_tier(|cx| {
            let packed = pack_linear(&w, Some(&b), Precision::F32).unwrap();
            close(linear(cx, &x, &packed).unwrap().f32s().unwrap(), &reference(&x, &w, Some(&b)), 2e-5);
            let want = reference(&narrow_x, &rounded.to_f32().unwrap(), None);
            for weight in [&w, &rounded] {
                let packed = pack_linear(weight, None, Precision::Bf16).unwrap();
                close(linear(cx, &x, &packed).unwrap().f32s().unwrap(), &want, 2e-5);
            }
        });
    }
}

#[test]
fn weights_that_bf16_holds_take_half_the_bytes_and_give_the_same_bits() {
    let (x, w) = (random(1, [19, 40]), random(2, [50, 40]).to_bf16().unwrap().to_f32().unwrap());
    let halved = pack_linear(&w, None, Precision::F32).unwrap();
    // One more output, which bf16 does not hold, keeps all of them in f32.
    let odd = [w.f32s().unwrap(), random(3, [40]).f32s().unwrap()].concat();
    let whole = pack_linear(&Tensor::from_f32(odd, [51, 40]).unwrap(), None, Precision::F32).unwrap();
    assert_eq!((halved.precision(), 2 * halved.bytes()), (Precision::F32, whole.bytes()));
    on_every_tier(|cx| {
        let (narrow, wide) = (linear(cx, &x, &halved).unwrap(), linear(cx, &x, &whole).unwrap());
        for (narrow, wide) in narrow.f32s().unwrap().chunks(50).zip(wide.f32s().unwrap().chunks(51)) {
            same_bits(narrow, &wide[..50]);
        }
    });
}

#[test]
fn a_row_has_the_same_bits_in_any_batch() {
    for (outputs, inputs) in [(75, 50), (200, 33)] {
        let (w, b) = (random(1, [outputs, inputs]), random(2, [outputs]));
        for precision in ALL {
            let packed = pack_linear(&w, Some(&b), precision).unwrap();
            assert_eq!(packed.precision(), precision);
            on_every_tier(|cx| rows_do_not_see_their_batch(inputs, |x| linear(cx, x, &packed).unwrap()));
        }
    }
}

#[test]
fn threads_do_not_change_a_bit_of_a_large_product() {
    let (w, x) = (random(1, [520, 260]), random(2, [150, 260]));
    for precision in ALL {
        let packed = pack_linear(&w, None, precision).unwrap();
        threads_do_not_show(|cx| linear(cx, &x, &packed).unwrap().bytes().to_vec());
    }
}

#[test]
fn an_epilogue_equals_the_operations_it_fuses() {
    let (x, w, b, residual) = (random(1, [9, 24]), random(2, [37, 24]), random(3, [37]), random(4, [9, 37]));
    let packed = pack_linear(&w, Some(&b), Precision::F32).unwrap();
    type Op = fn(&Cx, &Tensor) -> Result<Tensor, KernelError>;
    let pairs: [(Activation, Op); 4] = [
        (Activation::GeluErf, ops::gelu_erf),
        (Activation::GeluTanh, ops::gelu_tanh),
        (Activation::Relu, ops::relu),
        (Activation::Silu, ops::silu),
    ];
    on_every_tier(|cx| {
        let plain = linear(cx, &x, &packed).unwrap();
        for (activation, op) in pairs {
            let fused = linear_with(cx, &x, &packed, Epilogue { activation, residual: Some(&residual) }).unwrap();
            let apart = ops::add(cx, &op(cx, &plain).unwrap(), &residual).unwrap();
            assert_eq!(fused.bytes(), apart.bytes(), "{activation:?}");
        }
    });
}

#[test]
fn leading_dimensions_are_kept_and_empty_inputs_pass() {
    let cx = Cx::with_threads(2).unwrap();
    let packed = pack_linear(&random(1, [5, 8]), None, Precision::F32).unwrap();
    assert_eq!(linear(&cx, &random(2, [2, 3, 8]), &packed).unwrap().dims(), [2, 3, 5]);
    assert_eq!(linear(&cx, &random(2, [0, 8]), &packed).unwrap().dims(), [0, 5]);
}

#[test]
fn ill_fitting_operands_are_refused() {
    let cx = Cx::with_threads(1).unwrap();
    let w = random(1, [5, 8]);
    let packed = pack_linear(&w, None, Precision::F32).unwrap();
    assert!(linear(&cx, &random(2, [2, 7]), &packed).is_err());
    assert!(pack_linear(&w, Some(&random(3, [4])), Precision::F32).is_err());
    assert!(pack_linear(&random(3, [8]), None, Precision::F32).is_err());
    let residual = random(4, [2, 6]);
    let epilogue = Epilogue { residual: Some(&residual), ..Epilogue::default() };
    assert!(linear_with(&cx, &random(2, [2, 8]), &packed, epilogue).is_err());
    let ids = Tensor::from_u32(vec![1; 8], [1, 8]).unwrap();
    assert!(linear(&cx, &ids, &packed).is_err());
}
