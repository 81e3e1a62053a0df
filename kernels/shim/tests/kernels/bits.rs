//! Bits that no batch, chunk or choice of kernels may change, where a row is more than one vector.

use mstar_kernels::ops::{AttnRow, KvRow, KvSize, Reach};
use mstar_kernels::{Cx, DType, KvPages, Precision, Tensor, ops};
use mstar_shim::cases::attention::Sequence;
use mstar_shim::cases::random;
use mstar_shim::{HostDriver, device_with};

use crate::contexts;

#[test]
fn a_long_sequence_gives_the_same_bits_split_and_whole() {
    let Some((_, gpu)) = contexts() else { return };
    for dtype in [DType::F32, DType::BF16] {
        let sequence = Sequence::of(&gpu, dtype, 600).unwrap();
        for reach in [Reach::Causal, Reach::Window(280)] {
            // 350 rows make many blocks, which walk through the parts; one row's parts are blocks of their own.
            let many = sequence.attend(&gpu, 350, reach).unwrap().to_host().unwrap();
            let one = sequence.attend(&gpu, 1, reach).unwrap().to_host().unwrap();
            assert_eq!(many.rows(349..350).unwrap().bytes(), one.bytes(), "{dtype:?} {reach:?}");
        }
    }
}

/// Runs a sequence through pages, `steps` tokens at a time, beside a second sequence; returns its outputs.
fn in_chunks(cx: &Cx, dtype: DType, reach: Reach, steps: &[usize]) -> Vec<u8> {
    let size = KvSize { layers: 1, pages: 9, heads: 2, head_dim: 32 };
    let (q, k, v) = (random(1, [50, 6, 32]), random(2, [50, 2, 32]), random(3, [50, 2, 32]));
    let mut kv = KvPages::on(cx, size, dtype).unwrap();
    let table = [7, 2, 4, 0];
    let (mut at, mut out) = (0, Vec::new());
    for (turn, &step) in steps.iter().enumerate() {
        let beside = turn % 3;
        let (nq, nk) = (random(9, [beside, 6, 32]).on(cx).unwrap(), random(8, [beside, 2, 32]).on(cx).unwrap());
        let join = |a: &Tensor, b: &Tensor| {
            ops::concat_rows(cx, &[a, &b.rows(at..at + step).unwrap().on(cx).unwrap()]).unwrap()
        };
        let (q, k, v) = (join(&nq, &q), join(&nk, &k), join(&nk, &v));
        let rows = [
            KvRow { rows: 0..beside, table: &[5], first: 0 },
            KvRow { rows: beside..beside + step, table: &table, first: at },
        ];
        kv.append(cx, 0, (&k, &v), &rows).unwrap();
        let rows = [
            AttnRow { rows: 0..beside, table: &[5], kv_len: beside, reach },
            AttnRow { rows: beside..beside + step, table: &table, kv_len: at + step, reach },
        ];
        let got = ops::paged_attention(cx, &q, &kv, 0, &rows, 0.2).unwrap().to_host().unwrap();
        out.extend_from_slice(got.rows(beside..beside + step).unwrap().bytes());
        at += step;
    }
    out
}

#[test]
fn prefill_chunks_and_decode_give_the_same_bits_on_a_device() {
    let Some((_, gpu)) = contexts() else { return };
    for dtype in [DType::F32, DType::BF16] {
        for reach in [Reach::Causal, Reach::Window(21)] {
            let whole = in_chunks(&gpu, dtype, reach, &[50]);
            assert!(whole == in_chunks(&gpu, dtype, reach, &[1; 50]), "decode differs from prefill");
            for steps in [&[16, 16, 18][..], &[1, 30, 5, 5, 9]] {
                assert!(whole == in_chunks(&gpu, dtype, reach, steps), "{steps:?} differs from prefill");
            }
        }
    }
}

#[test]
fn garbage_in_unseen_slots_changes_nothing_on_a_device() {
    let Some((_, gpu)) = contexts() else { return };
    let size = KvSize { layers: 1, pages: 1, heads: 1, head_dim: 16 };
    let [q, k, v] = [(1, 1), (2, 3), (3, 3)].map(|(seed, rows)| random(seed, [rows, 1, 16]).on(&gpu).unwrap());
    let row = AttnRow { rows: 0..1, table: &[0], kv_len: 3, reach: Reach::Causal };
    let mut outs = Vec::new();
    for garbage in [0.0, f32::NAN] {
        let mut kv = KvPages::on(&gpu, size, DType::F32).unwrap();
        let bad = Tensor::from_f32(vec![garbage; 256], [16, 1, 16]).unwrap().on(&gpu).unwrap();
        kv.append(&gpu, 0, (&bad, &bad), &[KvRow { rows: 0..16, table: &[0], first: 0 }]).unwrap();
        kv.append(&gpu, 0, (&k, &v), &[KvRow { rows: 0..3, table: &[0], first: 0 }]).unwrap();
        let out = ops::paged_attention(&gpu, &q, &kv, 0, std::slice::from_ref(&row), 1.0).unwrap();
        outs.push(out.to_host().unwrap());
    }
    assert_eq!(outs[0].bytes(), outs[1].bytes());
}

#[test]
fn pages_that_are_shared_keep_what_they_held() {
    let Some((_, gpu)) = contexts() else { return };
    let size = KvSize { layers: 1, pages: 2, heads: 1, head_dim: 16 };
    let mut kv = KvPages::on(&gpu, size, DType::F32).unwrap();
    let (before, values) = kv.into_parts();
    kv = KvPages::from_parts(size, before.clone(), values).unwrap();
    let k = random(2, [3, 1, 16]).on(&gpu).unwrap();
    kv.append(&gpu, 0, (&k, &k), &[KvRow { rows: 0..3, table: &[0], first: 0 }]).unwrap();
    assert!(before.to_host().unwrap().f32s().unwrap().iter().all(|&x| x == 0.0));
    assert!(kv.into_parts().0.to_host().unwrap().f32s().unwrap().iter().any(|&x| x != 0.0));
}

#[test]
fn a_library_gets_whole_tiles_of_rows_and_what_follows_is_ours() {
    let Some(driver) = HostDriver::new() else { return };
    let cpu = Cx::with_threads(1).unwrap();
    let gpu = cpu.clone().with_gpu(device_with(driver.with_products(8)));
    for (rows, inputs, outputs) in [(1, 16, 24), (8, 16, 8), (11, 40, 16), (3, 10, 16), (3, 16, 10)] {
        for precision in [Precision::F32, Precision::Bf16] {
            let packed =
                ops::pack_linear(&random(1, [outputs, inputs]), Some(&random(2, [outputs])), precision).unwrap();
            let x = random(3, [rows, inputs]).to_bf16().unwrap().to_f32().unwrap();
            let residual = random(4, [rows, outputs]);
            let run = |cx: &Cx| {
                let residual = residual.on(cx).unwrap();
                let epilogue = ops::Epilogue { activation: ops::Activation::Silu, residual: Some(&residual) };
                let y = ops::linear_with(cx, &x.on(cx).unwrap(), &packed.on(cx).unwrap(), epilogue).unwrap();
                y.to_host().unwrap()
            };
            let (got, want) = (run(&gpu), run(&cpu));
            assert_eq!(got.dims(), want.dims());
            let gap = mstar_shim::cases::difference(got.f32s().unwrap(), want.f32s().unwrap());
            assert!(gap < 1e-5, "{rows}x{inputs}x{outputs} {precision:?}: off by {gap}");
        }
    }
}
