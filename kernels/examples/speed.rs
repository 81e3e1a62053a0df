//! Prints what the linear layer and attention reach on this machine, per tier: GFLOP/s, and GB/s of weights or keys.
//!
//! `cargo run --release -p mstar-kernels --example speed`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mstar_kernels::ops::{self, AttnRow, AttnSpan, KvPages, KvRow, KvSize, Reach};
use mstar_kernels::{Affinity, Cx, DType, KernelError, Pool, Precision, Tensor, Tier};

/// Weights are rotated through this many bytes, so that they come from memory.
const ROTATE: usize = 256 << 20;

fn main() -> Result<(), KernelError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let affinity = Affinity::Cores((0..threads).collect());
    affinity.pin(0);
    let pool = Arc::new(Pool::new(threads, affinity)?);
    let fork = median(10_000, || pool.each(threads, |i| _ = black_box(i)));
    println!("{threads} threads, fork and join {:.2} us", fork * 1e6);
    for tier in [Tier::Avx512, Tier::Avx2, Tier::Portable] {
        let Ok(cx) = Cx::cpu(pool.clone()).with_tier(tier) else { continue };
        println!("{tier:?}");
        for (inputs, outputs) in [(2_048, 4_096), (576, 1_536)] {
            for precision in [Precision::F32, Precision::Bf16] {
                linear(&cx, inputs, outputs, precision)?;
            }
        }
        prefill(&cx)?;
        decode(&cx)?;
        small(&cx)?;
    }
    Ok(())
}

fn linear(cx: &Cx, inputs: usize, outputs: usize, precision: Precision) -> Result<(), KernelError> {
    let weight = ramp(&[outputs, inputs])?;
    let one = ops::pack_linear(&weight, None, precision)?;
    let copies = (ROTATE / one.bytes()).max(1);
    let packs = (0..copies).map(|_| ops::pack_linear(&weight, None, precision)).collect::<Result<Vec<_>, _>>()?;
    print!("  linear {inputs}x{outputs} {precision:?}:");
    for rows in [1, 4, 16, 64, 512] {
        let x = ramp(&[rows, inputs])?;
        let mut turn = 0;
        let seconds = median((4_096 / rows).clamp(10, 100), || {
            turn = (turn + 1) % copies;
            _ = black_box(ops::linear(cx, &x, &packs[turn]));
        });
        let flops = 2.0 * (rows * inputs * outputs) as f64 / seconds / 1e9;
        print!("  M={rows} {flops:.0} GF/s");
        if rows == 1 {
            print!(" {:.1} GB/s", one.bytes() as f64 / seconds / 1e9);
        }
    }
    println!();
    Ok(())
}

fn prefill(cx: &Cx) -> Result<(), KernelError> {
    for (tokens, reach) in [(512, Reach::Full), (512, Reach::Causal), (1_500, Reach::Full)] {
        let (q, k, v) = (ramp(&[tokens, 16, 64])?, ramp(&[tokens, 16, 64])?, ramp(&[tokens, 16, 64])?);
        let span = AttnSpan { rows: 0..tokens, keys: 0..tokens, reach };
        let spans = [span];
        let seconds = median(10, || _ = black_box(ops::attention(cx, &q, (&k, &v), &spans, 0.125)));
        let flops = 4.0 * (tokens * tokens * 16 * 64) as f64 / seconds / 1e9;
        println!(
            "  attention {tokens}x{tokens} 16 heads {reach:?}: {:.1} ms, {flops:.0} GF/s of the full square",
            seconds * 1e3
        );
    }
    Ok(())
}

fn decode(cx: &Cx) -> Result<(), KernelError> {
    let (batch, len, heads) = (16, 2_048, 4);
    for dtype in [DType::F32, DType::BF16] {
        let size = KvSize { layers: 1, pages: batch * len / 16, heads, head_dim: 64 };
        let mut kv = KvPages::new(size, dtype)?;
        let tables: Vec<Vec<u32>> =
            (0..batch).map(|b| (0..len / 16).map(|p| (p * batch + b) as u32).collect()).collect();
        for table in &tables {
            let (k, v) = (ramp(&[len, heads, 64])?, ramp(&[len, heads, 64])?);
            kv.append(cx, 0, (&k, &v), &[KvRow { rows: 0..len, table, first: 0 }])?;
        }
        let q = ramp(&[batch, 4 * heads, 64])?;
        let row = |(b, table)| AttnRow { rows: b..b + 1, table, kv_len: len, reach: Reach::Causal };
        let rows: Vec<AttnRow<'_>> = tables.iter().map(Vec::as_slice).enumerate().map(row).collect();
        let seconds = median(30, || _ = black_box(ops::paged_attention(cx, &q, &kv, 0, &rows, 0.125)));
        let speed = kv.bytes() as f64 / seconds / 1e9;
        println!("  decode 16 x 2048, 16/4 heads, {dtype:?}: {:.2} ms, {speed:.1} GB/s", seconds * 1e3);
    }
    Ok(())
}

fn small(cx: &Cx) -> Result<(), KernelError> {
    let (x, gain) = (ramp(&[1, 576])?, ramp(&[576])?);
    let norm = median(2_000, || _ = black_box(ops::rms_norm(cx, &x, &gain, 1e-5, ops::Gain::Weight)));
    let wide = ramp(&[576, 4_096])?;
    let gelu = median(20, || _ = black_box(ops::gelu_erf(cx, &wide)));
    println!("  rms_norm 576: {:.2} us; gelu_erf 576x4096: {:.2} ms", norm * 1e6, gelu * 1e3);
    Ok(())
}

fn ramp(dims: &[usize]) -> Result<Tensor, KernelError> {
    Tensor::filled(mstar_kernels::Shape::new(dims)?, |out: &mut [f32]| {
        for (i, x) in out.iter_mut().enumerate() {
            *x = (i * 7 % 31) as f32 / 31.0 - 0.5;
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "measures")]
fn median(times: usize, mut run: impl FnMut()) -> f64 {
    run();
    let mut seconds: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[times / 2]
}
