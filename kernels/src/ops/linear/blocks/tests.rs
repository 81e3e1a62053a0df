//! Quantised layers against blocks read one by one, as GGUF defines them.

use half::f16;

use crate::check::{close, noise, on_every_tier, random, rows_do_not_see_their_batch};
use crate::ops::linear::Weights;
use crate::ops::{BlockFormat, PackedLinear, Precision, linear, pack_blocks, pack_linear};
use crate::{Cx, Tensor};

const FORMATS: [BlockFormat; 5] =
    [BlockFormat::Q8_0, BlockFormat::Q4_0, BlockFormat::Q4_1, BlockFormat::Q4K, BlockFormat::Q6K];

/// Random blocks whose scales are of ordinary size.
fn random_blocks(format: BlockFormat, count: usize) -> Vec<u8> {
    let size = format.block_bytes();
    let mut bytes: Vec<u8> = noise(size as u64, count * size).iter().map(|x| (x * 127.9 + 128.0) as u8).collect();
    let places: &[usize] = match format {
        BlockFormat::Q8_0 | BlockFormat::Q4_0 => &[0],
        BlockFormat::Q4_1 | BlockFormat::Q4K => &[0, 2],
        BlockFormat::Q6K => &[208],
    };
    for (block, scale) in bytes.chunks_exact_mut(size).zip(noise(9, count)) {
        for &at in places {
            block[at..at + 2].copy_from_slice(&f16::from_f32(0.01 * scale).to_le_bytes());
        }
    }
    bytes
}

/// The weights of one block, as ggml's reference reads them.
fn read(format: BlockFormat, block: &[u8]) -> Vec<f64> {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f64();
    match format {
        BlockFormat::Q8_0 => block[2..].iter().map(|&q| half(0) * f64::from(q.cast_signed())).collect(),
        BlockFormat::Q4_0 => {
            let halves = block[2..].iter().map(|q| q & 15).chain(block[2..].iter().map(|q| q >> 4));
            halves.map(|q| half(0) * (f64::from(q) - 8.0)).collect()
        }
        BlockFormat::Q4_1 => {
            let halves = block[4..].iter().map(|q| q & 15).chain(block[4..].iter().map(|q| q >> 4));
            halves.map(|q| half(0) * f64::from(q) + half(2)).collect()
        }
        BlockFormat::Q4K => {
            let (packed, mut out) = (&block[4..16], Vec::new());
            for i in 0..8 {
                let (step, min) = match i {
                    0..4 => (packed[i] & 63, packed[i + 4] & 63),
                    _ => (packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4),
                };
                let pair = &block[16 + i / 2 * 32..][..32];
                out.extend(pair.iter().map(|q| {
                    let q = if i % 2 == 0 { q & 15 } else { q >> 4 };
                    half(0) * f64::from(step) * f64::from(q) - half(2) * f64::from(min)
                }));
            }
            out
        }
        BlockFormat::Q6K => {
            let mut out = vec![0.0; 256];
            for (i, out) in out.iter_mut().enumerate() {
                let (part, quarter, l) = (i / 128, i % 128 / 32, i % 32);
                let low = block[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
                let high = block[128 + part * 32 + l] >> (2 * quarter) & 3;
                let step = f64::from(block[192 + i / 16].cast_signed());
                *out = half(208) * step * (f64::from(low | high << 4) - 32.0);
            }
            out
        }
    }
}

/// What activations become: eight bits per block of 32.
fn rounded(x: &[f32]) -> Vec<f64> {
    let block = |x: &[f32]| -> Vec<f64> {
        let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let per = if most > 0.0 { 127.0 / most } else { 0.0 };
        x.iter().map(|x| f64::from((x * per).round_ties_even()) * f64::from(most / 127.0)).collect()
    };
    x.chunks(32).flat_map(block).collect()
}

fn product(x: &Tensor, weights: &[f64], inputs: usize) -> Vec<f32> {
    let rows = x.f32s().unwrap().chunks(inputs).map(rounded);
    let row = |x: Vec<f64>| -> Vec<f32> {
        weights.chunks(inputs).map(|w| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>() as f32).collect()
    };
    rows.flat_map(row).collect()
}

#[test]
fn layers_made_of_blocks_follow_the_format() {
    for format in FORMATS {
        for (outputs, inputs) in [(5, 256), (33, 512), (64, 768)] {
            let bytes = random_blocks(format, outputs * inputs / format.block_len());
            let weights: Vec<f64> = bytes.chunks(format.block_bytes()).flat_map(|block| read(format, block)).collect();
            let packed = pack_blocks(format, &bytes, (outputs, inputs), None).unwrap();
            let most = weights.iter().fold(0.0f64, |most, w| most.max(w.abs())) as f32;
            // Six bits are rounded to eight once more.
            let tolerance = most * if format == BlockFormat::Q6K { 0.06 } else { 2e-5 } * (inputs as f32).sqrt();
            for rows in [1, 3, 21] {
                let x = random(1, [rows, inputs]);
                let want = product(&x, &weights, inputs);
                on_every_tier(|cx| close(linear(cx, &x, &packed).unwrap().f32s().unwrap(), &want, tolerance));
            }
        }
    }
}

#[test]
fn rows_of_blocks_do_not_see_their_batch() {
    for format in FORMATS {
        let bytes = random_blocks(format, 40 * 512 / format.block_len());
        let packed = pack_blocks(format, &bytes, (40, 512), Some(&random(1, [40]))).unwrap();
        on_every_tier(|cx| rows_do_not_see_their_batch(512, |x| linear(cx, x, &packed).unwrap()));
    }
}

#[test]
fn floats_that_are_quantised_stay_near() {
    let (x, w) = (random(1, [7, 200]), random(2, [37, 200]));
    let exact: Vec<f64> = w.f32s().unwrap().iter().map(|&w| f64::from(w)).collect();
    let want = product(&x, &exact, 200);
    for (precision, tolerance) in [(Precision::Q8, 0.1), (Precision::Q4, 1.6)] {
        let packed = pack_linear(&w, None, precision).unwrap();
        on_every_tier(|cx| close(linear(cx, &x, &packed).unwrap().f32s().unwrap(), &want, tolerance));
    }
}

#[test]
fn the_ends_of_the_ranges_do_not_overflow() {
    let mut bytes = vec![0; 34];
    bytes[..2].copy_from_slice(&f16::ONE.to_le_bytes());
    bytes[2..].fill(0x80);
    let packed = pack_blocks(BlockFormat::Q8_0, &bytes, (1, 32), None).unwrap();
    let x = Tensor::from_f32(vec![127.0; 32], [1, 32]).unwrap();
    on_every_tier(|cx| assert_eq!(linear(cx, &x, &packed).unwrap().f32s().unwrap(), [-128.0 * 127.0 * 32.0]));
}

/// Whether activations of some rows are lifted for these weights.
fn lifts(packed: &PackedLinear) -> bool {
    matches!(&packed.weights, Weights::Blocks(blocks) if blocks.lifted.is_some())
}

#[test]
fn lifted_rows_are_exact_to_the_ends_of_what_neighbours_may_be() {
    for (pair, lifted) in [
        ([64, 65], true),
        ([-64, -65], true),
        ([127, 2], true),
        ([-128, -1], true),
        ([127, -128], true),
        ([65, 65], false),
        ([-128, -2], false),
    ] {
        let mut bytes = f16::ONE.to_le_bytes().to_vec();
        bytes.extend(pair.map(i8::cast_unsigned).repeat(16));
        let packed = pack_blocks(BlockFormat::Q8_0, &bytes, (1, 32), None).unwrap();
        assert_eq!(lifts(&packed), lifted, "{pair:?}");
        for x in [[127.0, 127.0], [-127.0, -127.0], [127.0, -127.0]] {
            let want = 16.0 * (x[0] * f32::from(pair[0]) + x[1] * f32::from(pair[1]));
            let x = Tensor::from_f32(x.repeat(5 * 16), [5, 32]).unwrap();
            on_every_tier(|cx| assert_eq!(linear(cx, &x, &packed).unwrap().f32s().unwrap(), [want; 5]));
        }
    }
}

#[test]
fn floats_become_bytes_that_may_be_lifted_and_the_result_shows_no_lift() {
    let alike = Tensor::from_f32(vec![0.3; 40 * 96], [40, 96]).unwrap();
    for weight in [alike, random(1, [40, 96]), random(2, [7, 70])] {
        let packed = pack_linear(&weight, None, Precision::Q8).unwrap();
        assert!(lifts(&packed));
        on_every_tier(|cx| rows_do_not_see_their_batch(weight.dims()[1], |x| linear(cx, x, &packed).unwrap()));
    }
}

#[test]
fn what_is_no_number_stays_none_and_zeros_stay_zero() {
    let packed = pack_linear(&random(1, [3, 64]), None, Precision::Q4).unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let mut x = vec![1.0; 64];
        x[40] = bad;
        let x = Tensor::from_f32(x, [1, 64]).unwrap();
        on_every_tier(|cx| assert!(linear(cx, &x, &packed).unwrap().f32s().unwrap().iter().all(|y| y.is_nan())));
    }
    let zeros = Tensor::from_f32(vec![0.0; 64], [1, 64]).unwrap();
    on_every_tier(|cx| assert_eq!(linear(cx, &zeros, &packed).unwrap().f32s().unwrap(), [0.0; 3]));
}

#[test]
fn bytes_that_are_not_the_blocks_of_the_shape_are_refused() {
    for format in FORMATS {
        let bytes = random_blocks(format, 2);
        let inputs = format.block_len();
        assert!(pack_blocks(format, &bytes, (2, inputs), None).is_ok());
        assert!(pack_blocks(format, &bytes, (3, inputs), None).is_err());
        assert!(pack_blocks(format, &bytes[1..], (2, inputs), None).is_err());
        assert!(pack_blocks(format, &bytes, (2, inputs - 1), None).is_err());
        assert!(pack_blocks(format, &bytes, (2, inputs), Some(&random(1, [3]))).is_err());
    }
    let cx = Cx::with_threads(1).unwrap();
    let packed = pack_blocks(BlockFormat::Q8_0, &random_blocks(BlockFormat::Q8_0, 2), (2, 32), None).unwrap();
    assert!(linear(&cx, &random(1, [1, 31]), &packed).is_err());
}

#[test]
fn small_weights_lose_steps_but_no_scale() {
    let cx = Cx::with_threads(1).unwrap();
    for (size, most) in [(1.0, 0.01), (1e-4, 0.02), (1e-5, 0.02), (2e-6, 0.05)] {
        let weight: Vec<f32> = random(1, [16, 64]).f32s().unwrap().iter().map(|x| x * size).collect();
        let (weight, x) = (Tensor::from_f32(weight, [16, 64]).unwrap(), random(2, [3, 64]));
        let product = |precision| linear(&cx, &x, &pack_linear(&weight, None, precision).unwrap()).unwrap();
        let (exact, rounded) = (product(Precision::F32), product(Precision::Q8));
        let norm = |x: &[f32]| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let apart: Vec<f32> = exact.f32s().unwrap().iter().zip(rounded.f32s().unwrap()).map(|(a, b)| a - b).collect();
        let error = norm(&apart) / norm(exact.f32s().unwrap());
        assert!(error < most, "weights up to {size}: {error}");
    }
    let endless = Tensor::from_f32(vec![f32::INFINITY; 32], [1, 32]).unwrap();
    assert!(pack_linear(&endless, None, Precision::Q8).is_err());
    assert!(pack_linear(&endless, None, Precision::F32).is_ok());
}
