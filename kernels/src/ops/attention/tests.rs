//! Attention against its definition, on every tier, alone and in batches.

use super::*;
use crate::check::{close, on_every_tier, random, threads_do_not_show};

/// The definition, in f64: `q` at `row` over the keys it sees.
fn reference(q: &Tensor, (k, v): (&Tensor, &Tensor), spans: &[AttnSpan], scale: f32) -> Vec<f32> {
    let (heads, width, kv_heads) = (q.dims()[1], q.dims()[2], k.dims()[1]);
    let (qs, ks, vs) = (q.f32s().unwrap(), k.f32s().unwrap(), v.f32s().unwrap());
    let mut out = vec![0.0; qs.len()];
    for span in spans {
        for (i, row) in span.rows.clone().enumerate() {
            let own = span.keys.len() as isize - span.rows.len() as isize + i as isize;
            let sees = |key: isize| match span.reach {
                Reach::Full => true,
                Reach::Causal => key <= own,
                Reach::Window(n) => key <= own && own - key < n as isize,
                Reach::Blocks(n) => key / n as isize <= own / n as isize,
            };
            for head in 0..heads {
                let at = (row * heads + head) * width;
                let place = |key: usize| ((span.keys.start + key) * kv_heads + head * kv_heads / heads) * width;
                let keys: Vec<usize> = (0..span.keys.len()).filter(|&key| sees(key as isize)).collect();
                let dot = |key: usize| {
                    let pairs = qs[at..][..width].iter().zip(&ks[place(key)..]);
                    pairs.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
                };
                let scores: Vec<f64> = keys.iter().map(|&key| dot(key) * f64::from(scale)).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..width {
                    let sum = keys.iter().zip(&weights).map(|(&key, w)| w * f64::from(vs[place(key) + d]));
                    out[at + d] = (sum.sum::<f64>() / total.max(f64::MIN_POSITIVE)) as f32;
                }
            }
        }
    }
    out
}

#[test]
fn plain_attention_follows_its_definition() {
    let shapes = [(1, 1, 16), (4, 2, 32), (9, 3, 64), (6, 6, 20), (2, 1, 17)];
    for (heads, kv_heads, width) in shapes {
        let (q, k, v) =
            (random(1, [29, heads, width]), random(2, [70, kv_heads, width]), random(3, [70, kv_heads, width]));
        for reach in
            [Reach::Full, Reach::Causal, Reach::Window(0), Reach::Window(1), Reach::Window(19), Reach::Blocks(7)]
        {
            let spans = [
                AttnSpan { rows: 0..1, keys: 0..33, reach },
                AttnSpan { rows: 1..1, keys: 33..33, reach },
                AttnSpan { rows: 2..28, keys: 20..70, reach },
                AttnSpan { rows: 28..29, keys: 70..70, reach: Reach::Full },
            ];
            let want = reference(&q, (&k, &v), &spans, 0.3);
            on_every_tier(|cx| {
                let got = attention(cx, &q, (&k, &v), &spans, 0.3).unwrap();
                close(got.f32s().unwrap(), &want, 3e-6);
            });
        }
    }
}

#[test]
fn scores_that_rise_from_tile_to_tile_are_scaled_anew() {
    let (heads, width, keys) = (2, 32, 700);
    // Every key is more like the direction than the one before. For the first queries scores rise, for one they are all the
    // same, for the last they fall.
    let direction = random(1, [heads * width]);
    let along = |rows: usize, size: &dyn Fn(usize) -> f32| {
        let row = |r: usize| direction.f32s().unwrap().iter().map(move |x| x * size(r)).collect::<Vec<_>>();
        Tensor::from_f32((0..rows).flat_map(row).collect(), [rows, heads, width]).unwrap()
    };
    let q = along(13, &|r| 1.5 - 0.25 * r as f32);
    let (k, v) = (along(keys, &|key| key as f32 / 40.0), random(3, [keys, heads, width]));
    // In the second case each tile is beyond the powers that are told from nothing under the one after it; scores are large
    // then, and their last bits with them.
    for (scale, tolerance) in [(0.1, 1e-5), (4.0, 1e-3)] {
        for reach in [Reach::Full, Reach::Causal, Reach::Window(150)] {
            let spans = [AttnSpan { rows: 0..13, keys: 0..keys, reach }];
            let want = reference(&q, (&k, &v), &spans, scale);
            on_every_tier(|cx| {
                close(attention(cx, &q, (&k, &v), &spans, scale).unwrap().f32s().unwrap(), &want, tolerance);
            });
        }
    }
}

/// Tokens of [`in_chunks`]: several tiles of keys.
const TOKENS: usize = 300;

/// Runs a sequence through pages, `steps` tokens at a time, beside a second sequence; returns its outputs.
fn in_chunks(cx: &Cx, dtype: DType, reach: Reach, steps: &[usize]) -> Vec<u8> {
    let size = KvSize { layers: 2, pages: 25, heads: 2, head_dim: 32 };
    let (q, k, v) = (random(1, [TOKENS, 6, 32]), random(2, [TOKENS, 2, 32]), random(3, [TOKENS, 2, 32]));
    let mut kv = KvPages::new(size, dtype).unwrap();
    let table: Vec<u32> = (0..25).rev().filter(|&page| page != 5).collect();
    let (mut at, mut out) = (0, Vec::new());
    for (turn, &step) in steps.iter().enumerate() {
        // The neighbour's rows come before ours, a different number each time.
        let beside = turn % 3;
        let (nq, nk) = (random(9, [beside, 6, 32]), random(8, [beside, 2, 32]));
        let join = |a: &Tensor, b: &Tensor| crate::ops::concat_rows(cx, &[a, &b.rows(at..at + step).unwrap()]).unwrap();
        let (q, k, v) = (join(&nq, &q), join(&nk, &k), join(&nk, &v));
        let ours = KvRow { rows: beside..beside + step, table: &table, first: at };
        let theirs = KvRow { rows: 0..beside, table: &[5], first: 0 };
        kv.append(cx, 1, (&k, &v), &[theirs, ours]).unwrap();
        let rows = [
            AttnRow { rows: 0..beside, table: &[5], kv_len: beside, reach },
            AttnRow { rows: beside..beside + step, table: &table, kv_len: at + step, reach },
        ];
        let got = paged_attention(cx, &q, &kv, 1, &rows, 0.2).unwrap();
        out.extend_from_slice(got.rows(beside..beside + step).unwrap().bytes());
        at += step;
    }
    out
}

#[test]
fn prefill_chunks_and_decode_give_the_same_bits() {
    for dtype in [DType::F32, DType::BF16] {
        for reach in [Reach::Causal, Reach::Window(21), Reach::Window(150)] {
            on_every_tier(|cx| {
                let whole = in_chunks(cx, dtype, reach, &[TOKENS]);
                let by_token = in_chunks(cx, dtype, reach, &[1; TOKENS]);
                assert!(whole == by_token, "decode differs from prefill");
                for steps in [&[96, 160, 44][..], &[1, 130, 5, 5, 159], &[37; 8][..]] {
                    let chunked = in_chunks(cx, dtype, reach, steps);
                    assert!(chunked[..] == whole[..chunked.len()], "{steps:?} differs from prefill");
                }
            });
        }
    }
}

#[test]
fn a_block_decoded_at_once_sees_itself_whole() {
    on_every_tier(|cx| {
        let whole = in_chunks(cx, DType::F32, Reach::Blocks(10), &[TOKENS]);
        for steps in [&[10; 30][..], &[20, 150, 130]] {
            assert!(in_chunks(cx, DType::F32, Reach::Blocks(10), steps) == whole, "{steps:?}");
        }
    });
}

#[test]
fn threads_do_not_change_a_bit() {
    threads_do_not_show(|cx| in_chunks(cx, DType::BF16, Reach::Causal, &[120, 180]));
}

#[test]
fn pages_equal_plain_tensors_in_f32() {
    on_every_tier(|cx| {
        let (q, k, v) = (random(1, [TOKENS, 6, 32]), random(2, [TOKENS, 2, 32]), random(3, [TOKENS, 2, 32]));
        let span = AttnSpan { rows: 0..TOKENS, keys: 0..TOKENS, reach: Reach::Causal };
        let plain = attention(cx, &q, (&k, &v), &[span], 0.2).unwrap();
        assert!(in_chunks(cx, DType::F32, Reach::Causal, &[TOKENS]) == plain.bytes());
    });
}

#[test]
fn garbage_in_unseen_slots_changes_nothing() {
    let cx = Cx::with_threads(1).unwrap();
    let size = KvSize { layers: 1, pages: 1, heads: 1, head_dim: 16 };
    let (q, k, v) = (random(1, [1, 1, 16]), random(2, [3, 1, 16]), random(3, [3, 1, 16]));
    let row = AttnRow { rows: 0..1, table: &[0], kv_len: 3, reach: Reach::Causal };
    let mut outs = Vec::new();
    for garbage in [0.0, f32::NAN] {
        let mut kv = KvPages::new(size, DType::F32).unwrap();
        let bad = Tensor::from_f32(vec![garbage; 256], [16, 1, 16]).unwrap();
        kv.append(&cx, 0, (&bad, &bad), &[KvRow { rows: 0..16, table: &[0], first: 0 }]).unwrap();
        kv.append(&cx, 0, (&k, &v), &[KvRow { rows: 0..3, table: &[0], first: 0 }]).unwrap();
        outs.push(paged_attention(&cx, &q, &kv, 0, std::slice::from_ref(&row), 1.0).unwrap());
    }
    assert_eq!(outs[0].bytes(), outs[1].bytes());
}

#[test]
fn rows_tables_and_lengths_that_do_not_fit_are_refused() {
    let cx = Cx::with_threads(1).unwrap();
    let kv = KvPages::new(KvSize { layers: 1, pages: 2, heads: 2, head_dim: 16 }, DType::F32).unwrap();
    let q = random(1, [4, 4, 16]);
    let reach = Reach::Causal;
    let refused = [
        vec![AttnRow { rows: 0..5, table: &[0], kv_len: 8, reach }],
        vec![AttnRow { rows: 0..4, table: &[0], kv_len: 3, reach }],
        vec![AttnRow { rows: 0..4, table: &[0], kv_len: 17, reach }],
        vec![AttnRow { rows: 0..4, table: &[2], kv_len: 4, reach }],
        vec![
            AttnRow { rows: 0..2, table: &[0], kv_len: 4, reach },
            AttnRow { rows: 1..3, table: &[1], kv_len: 4, reach },
        ],
    ];
    for rows in refused {
        assert!(paged_attention(&cx, &q, &kv, 0, &rows, 1.0).is_err(), "{rows:?}");
    }
    assert!(paged_attention(&cx, &q, &kv, 1, &[], 1.0).is_err());
    assert!(paged_attention(&cx, &random(1, [4, 3, 16]), &kv, 0, &[], 1.0).is_err());
    assert!(attention(&cx, &q, (&q, &random(2, [4, 2, 16])), &[], 1.0).is_err());
}

#[test]
fn queries_keys_and_values_side_by_side_give_the_same_bits() {
    for (heads, kv_heads, width) in [(1, 1, 16), (6, 2, 32), (9, 3, 64), (4, 4, 20), (4, 2, 17)] {
        let qkv = random(4, [40, (heads + 2 * kv_heads) * width]);
        let spans = [
            AttnSpan { rows: 0..17, keys: 0..17, reach: Reach::Full },
            AttnSpan { rows: 17..40, keys: 17..40, reach: Reach::Causal },
        ];
        on_every_tier(|cx| {
            let part = |first: usize, count: usize| {
                let cut = crate::ops::columns(cx, &qkv, first * width..(first + count) * width).unwrap();
                cut.reshape([40, count, width]).unwrap()
            };
            let (q, k, v) = (part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads));
            let apart = attention(cx, &q, (&k, &v), &spans, 0.3).unwrap();
            let joined = attention_joined(cx, &qkv, (kv_heads, width), &spans, 0.3).unwrap();
            assert!(joined.f32s().unwrap() == apart.f32s().unwrap(), "{heads} {kv_heads} {width}");
            assert_eq!(joined.shape(), apart.shape());
        });
    }
}
