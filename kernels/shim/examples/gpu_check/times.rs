//! Times of the operations at the sizes of a served language model, a vision block and a decoder of audio.

use std::time::Instant;

use mstar_kernels::ops::{self, AttnRow, AttnSpan, KvSize, Reach};
use mstar_kernels::{Cx, DType, Epilogue, KernelError, KvPages, Precision, Tensor};
use serde_json::{Value, json};

use mstar_shim::cases::random;

/// How large the operations are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// As they are served.
    Serving,
    /// So that the shim is done in seconds.
    Tiny,
}

/// Runs before it counts, and runs that count.
const RUNS: (usize, usize) = (3, 20);

/// One thing to time: its name, the bytes it must move, the multiply-adds it must do.
struct Work {
    name: String,
    bytes: usize,
    products: usize,
}

/// Times everything.
pub(crate) fn all(cx: &Cx, size: Size) -> Result<Vec<Value>, KernelError> {
    let small = |serving: usize, tiny: usize| if size == Size::Serving { serving } else { tiny };
    let mut times = Vec::new();
    let (inputs, outputs) = (small(4_096, 64), small(14_336, 96));
    for precision in [Precision::F32, Precision::Bf16, Precision::Q8] {
        for rows in [1, small(16, 4), small(512, 8)] {
            times.push(linear(cx, (rows, inputs, outputs), precision)?);
        }
    }
    let width = small(4_096, 64);
    for rows in [1, small(512, 4)] {
        times.extend(rowwise(cx, rows, width)?);
    }
    for (sequences, keys) in [(1, small(4_096, 40)), (small(16, 2), small(1_024, 40))] {
        times.push(decode(cx, sequences, keys)?);
    }
    times.push(prefill(cx, small(1_024, 20))?);
    times.push(convolution(cx, small(3_000, 20), small(512, 8))?);
    times.push(image(cx, small(128, 6), small(256, 8))?);
    times.push(picking(cx, small(16, 2), small(128_256, 100))?);
    Ok(times)
}

fn timed(cx: &Cx, work: Work, mut run: impl FnMut() -> Result<Tensor, KernelError>) -> Result<Value, KernelError> {
    let finish = || cx.gpu().map_or(Ok(()), |gpu| gpu.finish());
    for _ in 0..RUNS.0 {
        run()?;
    }
    finish()?;
    #[expect(clippy::disallowed_methods, reason = "it times operations, not requests")]
    let start = Instant::now();
    for _ in 0..RUNS.1 {
        run()?;
    }
    finish()?;
    let seconds = start.elapsed().as_secs_f64() / RUNS.1 as f64;
    Ok(json!({
        "name": work.name,
        "us": seconds * 1e6,
        "gb_per_s": work.bytes as f64 / seconds / 1e9,
        "tflops": 2.0 * work.products as f64 / seconds / 1e12,
    }))
}

fn linear(cx: &Cx, (rows, inputs, outputs): (usize, usize, usize), precision: Precision) -> Result<Value, KernelError> {
    let weight = ops::pack_linear(&random(1, [outputs, inputs]), None, precision)?.on(cx)?;
    let x = random(2, [rows, inputs]).on(cx)?;
    let name = format!("linear {precision:?} {rows}x{inputs}x{outputs}");
    let work = Work { name, bytes: weight.bytes(), products: rows * inputs * outputs };
    timed(cx, work, || ops::linear(cx, &x, &weight))
}

fn rowwise(cx: &Cx, rows: usize, width: usize) -> Result<Vec<Value>, KernelError> {
    let (x, w) = (random(1, [rows, width]).on(cx)?, random(2, [width]).on(cx)?);
    let work = |name: &str| Work { name: format!("{name} {rows}x{width}"), bytes: rows * width * 8, products: 0 };
    Ok(vec![
        timed(cx, work("silu"), || ops::silu(cx, &x))?,
        timed(cx, work("rms_norm"), || ops::rms_norm(cx, &x, &w, 1e-5, ops::Gain::Weight))?,
        timed(cx, work("layer_norm"), || ops::layer_norm(cx, &x, Some(&w), Some(&w), 1e-5))?,
        timed(cx, work("softmax"), || ops::softmax(cx, &x))?,
    ])
}

/// One token of each sequence over its keys: 32 heads over 8 of 128, `bf16`.
fn decode(cx: &Cx, sequences: usize, keys: usize) -> Result<Value, KernelError> {
    let pages = keys.div_ceil(16);
    let size = KvSize { layers: 1, pages: pages * sequences, heads: 8, head_dim: 128 };
    let kv = KvPages::on(cx, size, DType::BF16)?;
    let q = random(1, [sequences, 32, 128]).on(cx)?;
    let tables: Vec<Vec<u32>> =
        (0..sequences).map(|s| (s * pages..(s + 1) * pages).map(|page| page as u32).collect()).collect();
    let row = |(i, table)| AttnRow { rows: i..i + 1, table, kv_len: keys, reach: Reach::Causal };
    let rows: Vec<AttnRow<'_>> = tables.iter().map(Vec::as_slice).enumerate().map(row).collect();
    let name = format!("decode attention, {sequences} sequences of {keys}");
    let work = Work { name, bytes: kv.bytes(), products: sequences * keys * 32 * 128 * 2 };
    timed(cx, work, || ops::paged_attention(cx, &q, &kv, 0, &rows, 0.1))
}

fn prefill(cx: &Cx, tokens: usize) -> Result<Value, KernelError> {
    let q = random(1, [tokens, 32, 128]).on(cx)?;
    let (k, v) = (random(2, [tokens, 8, 128]).on(cx)?, random(3, [tokens, 8, 128]).on(cx)?);
    let span = AttnSpan { rows: 0..tokens, keys: 0..tokens, reach: Reach::Causal };
    let name = format!("prefill attention, {tokens} tokens");
    let work = Work { name, bytes: q.byte_len() * 2, products: tokens * tokens * 32 * 128 };
    timed(cx, work, || ops::attention(cx, &q, (&k, &v), std::slice::from_ref(&span), 0.1))
}

fn convolution(cx: &Cx, rows: usize, channels: usize) -> Result<Value, KernelError> {
    let weight = random(1, [channels, channels, 7]);
    let packed = ops::pack_conv1d(&weight, None, ops::Taps::same(7, 1), Precision::Bf16)?.on(cx)?;
    let x = random(2, [rows, channels]).on(cx)?;
    let name = format!("conv1d of 7, {rows}x{channels}");
    let work = Work { name, bytes: x.byte_len() * 2, products: rows * channels * channels * 7 };
    timed(cx, work, || ops::conv1d(cx, &x, &packed, Epilogue::default()))
}

fn image(cx: &Cx, side: usize, channels: usize) -> Result<Value, KernelError> {
    let weight = random(1, [channels, channels, 3, 3]);
    let packed = ops::pack_conv2d(&weight, None, ops::Grid::same(3), Precision::Bf16)?.on(cx)?;
    let x = random(2, [side, side, channels]).on(cx)?;
    let name = format!("conv2d of 3x3, {side}x{side}x{channels}");
    let work = Work { name, bytes: x.byte_len() * 2, products: side * side * channels * channels * 9 };
    timed(cx, work, || ops::conv2d(cx, &x, &packed, Epilogue::default()))
}

fn picking(cx: &Cx, rows: usize, width: usize) -> Result<Value, KernelError> {
    let x = random(1, [rows, width]).on(cx)?;
    let work = Work { name: format!("top_k of 20, {rows}x{width}"), bytes: x.byte_len() * 20, products: 0 };
    timed(cx, work, || ops::top_k(cx, &x, 20).map(|top| top.values))
}
