//! Prints, as JSON, what operations reach on this machine beside what its memory gives in the same run.
//!
//! `cargo run --release -p mstar-kernels --example speed [what..]`, where `what` begins the names
//! of rows to run, or a tier's (`Avx2`, or `Avx2 attention`).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mstar_kernels::ops::{
    self, Activation, AttnRow, AttnSpan, Epilogue, Grid, GroupNorm, KvPages, KvRow, KvSize, Reach, Taps,
};
use mstar_kernels::{Affinity, Cx, DType, KernelError, Pool, Precision, Tensor, Tier};

/// Weights are rotated through this many bytes, so that they come from memory.
const ROTATE: usize = 256 << 20;

fn main() -> Result<(), KernelError> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let affinity = Affinity::Cores((0..threads).collect());
    affinity.pin(0);
    let pool = Arc::new(Pool::new(threads, affinity)?);
    let fork = best(10_000, || pool.each(threads, |i| _ = black_box(i)));
    let probe = Probe::new(&pool)?;
    println!("{{\"threads\": {threads}, \"fork_us\": {:.2}, \"rows\": [", fork * 1e6);
    for tier in Tier::ALL.into_iter().rev().filter(|tier| tier.present()) {
        let bench = Bench { cx: Cx::cpu(pool.clone()).with_tier(tier)?, probe: &probe, wanted: &wanted };
        linears(&bench)?;
        attentions(&bench)?;
        small(&bench)?;
        convolutions(&bench)?;
    }
    println!("{{}}]}}");
    Ok(())
}

/// A context, and which rows to run in it.
struct Bench<'a> {
    cx: Cx,
    probe: &'a Probe,
    wanted: &'a [String],
}

/// What an operation does in one run.
#[derive(Default)]
struct Work {
    flops: f64,
    /// Bytes that have to come from memory.
    bytes: f64,
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        let whole = format!("{:?} {name}", self.cx.tier());
        let begins = |wanted: &String| name.starts_with(wanted.as_str()) || whole.starts_with(wanted.as_str());
        self.wanted.is_empty() || self.wanted.iter().any(begins)
    }

    /// Prints a row: the median and the best time, rates at the best, and the memory's share of it.
    fn row(&self, name: &str, times: usize, work: &Work, run: impl FnMut()) {
        if !self.wants(name) {
            return;
        }
        let read = self.probe.gigabytes(self.cx.pool());
        let seconds = times_of(times, run);
        let (least, median) = (seconds[0], seconds[times / 2]);
        let floor = work.bytes / read / 1e9;
        println!(
            "{{\"tier\": \"{:?}\", \"op\": \"{name}\", \"us\": {:.2}, \"median_us\": {:.2}, \"gflops\": {:.1}, \
             \"gbps\": {:.2}, \"read_gbps\": {read:.1}, \"of_read\": {:.2}}},",
            self.cx.tier(),
            least * 1e6,
            median * 1e6,
            work.flops / least / 1e9,
            work.bytes / least / 1e9,
            floor / least,
        );
    }
}

/// The memory's read bandwidth, measured beside each row: it drifts.
struct Probe {
    bytes: Tensor,
    seen: AtomicU64,
}

impl Probe {
    fn new(pool: &Pool) -> Result<Self, KernelError> {
        let bytes = Tensor::filled([ROTATE], |out: &mut [u8]| {
            pool.chunks(out, PART, |i, part| part.fill(i as u8));
        })?;
        Ok(Self { bytes, seen: AtomicU64::new(0) })
    }

    /// Reads it all, eight streams per thread.
    fn gigabytes(&self, pool: &Pool) -> f64 {
        let bytes = self.bytes.bytes();
        let seconds = best(4, || {
            pool.each(ROTATE / PART, |i| {
                let streams: Vec<&[[u64; 8]]> = bytes[i * PART..][..PART]
                    .chunks_exact(PART / 8)
                    .map(|stream| bytemuck::cast_slice::<u8, u64>(stream).as_chunks().0)
                    .collect();
                let mut sums = [0u64; 8];
                for line in 0..PART / 8 / 64 {
                    for stream in &streams {
                        for (sum, word) in sums.iter_mut().zip(&stream[line]) {
                            *sum ^= word;
                        }
                    }
                }
                self.seen.fetch_xor(sums.iter().fold(0, |a, b| a ^ b), Ordering::Relaxed);
            });
        });
        ROTATE as f64 / seconds / 1e9
    }
}

/// What one task of the probe reads.
const PART: usize = 1 << 20;

fn linears(bench: &Bench<'_>) -> Result<(), KernelError> {
    for (inputs, outputs) in [(2_048, 4_096), (1_024, 4_096), (576, 1_536)] {
        for precision in [Precision::F32, Precision::Bf16, Precision::Q8, Precision::Q4] {
            let name = format!("linear {inputs}x{outputs} {precision:?}");
            if !bench.wants(&name) {
                continue;
            }
            // Not all of it fits bf16, or f32 would be stored so.
            let weight = ramp(&[outputs, inputs])?;
            let one = ops::pack_linear(&weight, None, precision)?;
            let copies = (ROTATE / one.bytes()).clamp(1, 64);
            let packs =
                (0..copies).map(|_| ops::pack_linear(&weight, None, precision)).collect::<Result<Vec<_>, _>>()?;
            for rows in [1, 4, 16, 64, 512] {
                let x = ramp(&[rows, inputs])?;
                let flops = 2.0 * (rows * inputs * outputs) as f64;
                let mut turn = 0;
                let work = Work { flops, bytes: one.bytes() as f64 };
                bench.row(&format!("{name} M={rows}"), (2_048 / rows).clamp(6, 100), &work, || {
                    turn = (turn + 1) % copies;
                    _ = black_box(ops::linear(&bench.cx, &x, &packs[turn]));
                });
            }
        }
    }
    Ok(())
}

fn attentions(bench: &Bench<'_>) -> Result<(), KernelError> {
    for (tokens, reach) in [(512, Reach::Full), (512, Reach::Causal), (1_500, Reach::Full)] {
        let (q, k, v) = (ramp(&[tokens, 16, 64])?, ramp(&[tokens, 16, 64])?, ramp(&[tokens, 16, 64])?);
        let spans = [AttnSpan { rows: 0..tokens, keys: 0..tokens, reach }];
        let work = Work { flops: 4.0 * (tokens * tokens * 16 * 64) as f64, bytes: 0.0 };
        bench.row(&format!("attention {tokens}x{tokens} 16 heads {reach:?}"), 10, &work, || {
            _ = black_box(ops::attention(&bench.cx, &q, (&k, &v), &spans, 0.125));
        });
    }
    for (dtype, heads) in [(DType::F32, 4), (DType::BF16, 4), (DType::F32, 16), (DType::BF16, 16)] {
        decode(bench, dtype, heads)?;
    }
    Ok(())
}

/// One token of each of sixteen sequences with 2,048 keys, in scattered pages.
fn decode(bench: &Bench<'_>, dtype: DType, heads: usize) -> Result<(), KernelError> {
    let name = format!("decode 16x2048 16/{heads} heads {dtype:?}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let (batch, len) = (16, 2_048);
    let size = KvSize { layers: 1, pages: batch * len / 16, heads, head_dim: 64 };
    let mut kv = KvPages::new(size, dtype)?;
    let tables: Vec<Vec<u32>> = (0..batch).map(|b| (0..len / 16).map(|p| (p * batch + b) as u32).collect()).collect();
    for table in &tables {
        let (k, v) = (ramp(&[len, heads, 64])?, ramp(&[len, heads, 64])?);
        kv.append(&bench.cx, 0, (&k, &v), &[KvRow { rows: 0..len, table, first: 0 }])?;
    }
    let q = ramp(&[batch, 16, 64])?;
    let row = |(b, table)| AttnRow { rows: b..b + 1, table, kv_len: len, reach: Reach::Causal };
    let rows: Vec<AttnRow<'_>> = tables.iter().map(Vec::as_slice).enumerate().map(row).collect();
    let work = Work { flops: 4.0 * (batch * len * 16 * 64) as f64, bytes: kv.bytes() as f64 };
    bench.row(&name, 30, &work, || {
        _ = black_box(ops::paged_attention(&bench.cx, &q, &kv, 0, &rows, 0.125));
    });
    Ok(())
}

fn small(bench: &Bench<'_>) -> Result<(), KernelError> {
    let (x, gain) = (ramp(&[1, 576])?, ramp(&[576])?);
    let work = Work::default();
    bench.row("rms_norm 576", 2_000, &work, || {
        _ = black_box(ops::rms_norm(&bench.cx, &x, &gain, 1e-5, ops::Gain::Weight));
    });
    let wide = ramp(&[576, 4_096])?;
    bench.row("gelu_erf 576x4096", 20, &work, || _ = black_box(ops::gelu_erf(&bench.cx, &wide)));
    Ok(())
}

fn convolutions(bench: &Bench<'_>) -> Result<(), KernelError> {
    let (x, w) = (ramp(&[3_008, 256])?, ramp(&[256, 256, 7])?);
    for precision in [Precision::F32, Precision::Bf16] {
        let conv = ops::pack_conv1d(&w, None, Taps::same(7, 1), precision)?;
        let work = Work { flops: 2.0 * 3_008.0 * 256.0 * 256.0 * 7.0, bytes: 0.0 };
        bench.row(&format!("conv1d k7 256 L3008 {precision:?}"), 10, &work, || {
            _ = black_box(ops::conv1d(&bench.cx, &x, &conv, Epilogue::default()));
        });
    }
    let up = ops::pack_conv_transpose1d(&ramp(&[512, 256, 16])?, None, (8, (4, 4)), Precision::F32)?;
    let (low, alpha) = (ramp(&[376, 512])?, ramp(&[256])?);
    let work = Work { flops: 2.0 * 376.0 * 512.0 * 256.0 * 16.0, bytes: 0.0 };
    bench.row("conv_transpose1d s8 512->256 L376 F32", 10, &work, || {
        _ = black_box(ops::conv_transpose1d(&bench.cx, &low, &up));
    });
    bench.row("snake 256 L3008", 20, &Work::default(), || _ = black_box(ops::snake(&bench.cx, &x, &alpha)));
    let (image, w) = (ramp(&[128, 128, 256])?, ramp(&[256, 256, 3, 3])?);
    for precision in [Precision::F32, Precision::Bf16] {
        let conv = ops::pack_conv2d(&w, None, Grid::same(3), precision)?;
        let work = Work { flops: 2.0 * 128.0 * 128.0 * 256.0 * 256.0 * 9.0, bytes: 0.0 };
        bench.row(&format!("conv2d 3x3 256->256 128x128 {precision:?}"), 6, &work, || {
            _ = black_box(ops::conv2d(&bench.cx, &image, &conv, Epilogue::default()));
        });
    }
    let norm = GroupNorm { groups: 32, weight: &alpha, bias: &alpha, eps: 1e-6, activation: Activation::None };
    bench.row("group_norm 256 128x128", 20, &Work::default(), || {
        _ = black_box(ops::group_norm(&bench.cx, &image, norm));
    });
    let deep = ops::pack_depthwise_conv1d(&ramp(&[256, 1, 7])?, None, Taps::same(7, 1))?;
    bench.row("depthwise k7 256 L3008", 20, &Work::default(), || {
        _ = black_box(ops::depthwise_conv1d(&bench.cx, &x, &deep));
    });
    Ok(())
}

/// Numbers that `bf16` does not hold.
fn ramp(dims: &[usize]) -> Result<Tensor, KernelError> {
    Tensor::filled(mstar_kernels::Shape::new(dims)?, |out: &mut [f32]| {
        for (i, x) in out.iter_mut().enumerate() {
            *x = (i * 7 % 31) as f32 / 31.0 - 0.5;
        }
    })
}

fn best(times: usize, run: impl FnMut()) -> f64 {
    times_of(times, run)[0]
}

/// Runs once to warm up, then so many times; returns their seconds, ascending.
#[expect(clippy::disallowed_methods, reason = "measures")]
fn times_of(times: usize, mut run: impl FnMut()) -> Vec<f64> {
    run();
    let mut seconds: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}
