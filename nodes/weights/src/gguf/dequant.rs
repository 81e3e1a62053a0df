//! GGML's quantised blocks to `f32`.
//!
//! Layouts follow ggml's `ggml-quants.c`; every function takes one block and writes its weights.

use half::f16;

use crate::tensor::GgmlQ;

/// Dequantises whole blocks; both slices hold the same number of them.
pub(crate) fn blocks(q: GgmlQ, bytes: &[u8], out: &mut [f32]) {
    let block = match q {
        GgmlQ::Q4_0 => q4_0,
        GgmlQ::Q4_1 => q4_1,
        GgmlQ::Q5_0 => q5_0,
        GgmlQ::Q5_1 => q5_1,
        GgmlQ::Q8_0 => q8_0,
        GgmlQ::Q4K => q4_k,
        GgmlQ::Q6K => q6_k,
    };
    let weights = out.chunks_exact_mut(q.block_weights());
    for (from, to) in bytes.chunks_exact(q.block_bytes()).zip(weights) {
        block(from, to);
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Byte `i` holds weight `i` in its low and weight `i + 16` in its high half.
fn nibbles(packed: &[u8]) -> impl Iterator<Item = (usize, u8, u8)> {
    packed.iter().enumerate().map(|(i, &b)| (i, b & 15, b >> 4))
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, low, high) in nibbles(&block[2..]) {
        out[i] = (f32::from(low) - 8.0) * d;
        out[i + 16] = (f32::from(high) - 8.0) * d;
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (i, low, high) in nibbles(&block[4..]) {
        out[i] = f32::from(low) * d + m;
        out[i + 16] = f32::from(high) * d + m;
    }
}

/// Five-bit weights: the fifth bits of all 32 lie in one word before the nibbles.
fn five_bits(block: &[u8], at: usize, mut put: impl FnMut(usize, f32)) {
    let fifth = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    for (i, low, high) in nibbles(&block[at + 4..]) {
        let bit = |n: usize| ((fifth >> n & 1) << 4) as u8;
        put(i, f32::from(low | bit(i)));
        put(i + 16, f32::from(high | bit(i + 16)));
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    five_bits(block, 2, |i, q| out[i] = (q - 16.0) * d);
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    five_bits(block, 4, |i, q| out[i] = q * d + m);
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (to, &q) in out.iter_mut().zip(&block[2..]) {
        *to = f32::from(q as i8) * d;
    }
}

/// The six-bit scale and minimum of sub-block `j`: the first four are plain, the last four are
/// split between spare high bits of the first eight bytes and the nibbles of the last four.
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let split = packed[j + 4];
        (split & 15 | packed[j - 4] >> 6 << 4, split >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (scales, packed) = block[4..].split_at(12);
    for (pair, (from, to)) in packed.chunks_exact(32).zip(out.chunks_exact_mut(64)).enumerate() {
        let (s0, m0) = scale_min(scales, 2 * pair);
        let (s1, m1) = scale_min(scales, 2 * pair + 1);
        for (i, &b) in from.iter().enumerate() {
            to[i] = d * s0 * f32::from(b & 15) - dmin * m0;
            to[i + 32] = d * s1 * f32::from(b >> 4) - dmin * m1;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for half in 0..2 {
        let low = &block[half * 64..][..64];
        let high = &block[128 + half * 32..][..32];
        let scales = &block[192 + half * 8..][..8];
        let to = &mut out[half * 128..][..128];
        for i in 0..32 {
            let two = |shift: u32| (high[i] >> shift & 3) << 4;
            let quants =
                [low[i] & 15 | two(0), low[i + 32] & 15 | two(2), low[i] >> 4 | two(4), low[i + 32] >> 4 | two(6)];
            for (quarter, q) in quants.into_iter().enumerate() {
                let scale = f32::from(scales[quarter * 2 + i / 16] as i8);
                to[quarter * 32 + i] = d * scale * (f32::from(q) - 32.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of fixed bytes with sane scales, as llama.cpp's own Python package was given.
    fn block(q: GgmlQ) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..q.block_bytes()).map(|i| ((i * 89 + 41 + (i * i) % 23) % 256) as u8).collect();
        let (eighth, minus_half) = ([0x00, 0x30], [0x00, 0xb8]);
        match q {
            GgmlQ::Q6K => bytes[208..].copy_from_slice(&eighth),
            _ => bytes[..2].copy_from_slice(&eighth),
        }
        if matches!(q, GgmlQ::Q4_1 | GgmlQ::Q5_1 | GgmlQ::Q4K) {
            bytes[2..4].copy_from_slice(&minus_half);
        }
        bytes
    }

    /// Compares with that package's answer: the sum, the sum weighted by position, and some values.
    fn check(q: GgmlQ, sum: f64, weighted: f64, values: &[(usize, f32)]) {
        let mut out = vec![0.0; q.block_weights()];
        blocks(q, &block(q), &mut out);
        for &(i, expected) in values {
            assert_eq!(out[i], expected, "{q:?}[{i}]");
        }
        assert_eq!(out.iter().map(|&x| f64::from(x)).sum::<f64>(), sum, "{q:?}");
        let by_position = out.iter().enumerate().map(|(i, &x)| f64::from(x) * (i + 1) as f64);
        assert_eq!(by_position.sum::<f64>(), weighted, "{q:?}");
    }

    #[test]
    fn small_blocks_equal_the_reference() {
        check(GgmlQ::Q4_0, -1.25, -85.625, &[(0, 0.875), (1, 0.625), (16, 0.625), (31, -0.875)]);
        check(GgmlQ::Q4_1, 13.75, 196.0, &[(0, 1.125), (15, 0.0), (17, 1.25), (31, 1.125)]);
        check(GgmlQ::Q5_0, 5.375, -9.75, &[(0, 1.5), (15, -0.75), (17, -0.875), (31, 0.875)]);
        check(GgmlQ::Q5_1, 43.75, 715.875, &[(0, 1.875), (15, 2.5), (16, -0.5), (31, 1.75)]);
        check(GgmlQ::Q8_0, -4.375, -180.375, &[(0, -4.125), (16, 13.625), (31, -10.75)]);
    }

    #[test]
    fn super_blocks_equal_the_reference() {
        let values = [(0, 45.0), (32, 66.0), (100, 14.5), (128, 83.125), (160, 114.75), (255, 63.0)];
        check(GgmlQ::Q4K, 10088.125, 1_358_207.0, &values);
        let values = [(0, 4.375), (31, -292.5), (32, 313.875), (100, -28.875), (128, -104.5), (255, 20.0)];
        check(GgmlQ::Q6K, -9.375, 143_865.125, &values);
    }
}
