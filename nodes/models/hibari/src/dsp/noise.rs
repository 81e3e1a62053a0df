//! Counter-based Gaussian noise: the value at a place depends on the place alone, so cutting a sound into
//! blocks cannot change it.

use std::f32::consts::TAU;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The noise of one sentence of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    key: [u32; 2],
    sentence: u32,
}

impl Noise {
    /// Keys the noise by a request's seed and the number of the sentence in it.
    pub fn new(seed: u64, sentence: u32) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], sentence }
    }

    /// Writes the complex values of a frame's bins, real and imaginary parts independent with variance 1.
    pub fn frame(&self, frame: u32, bins: &mut [[f32; 2]]) {
        for (pair, values) in bins.chunks_mut(2).enumerate() {
            let words = philox([pair as u32, frame, self.sentence, 0], self.key);
            for (value, &[a, b]) in values.iter_mut().zip(words.as_chunks::<2>().0) {
                *value = gaussian(a, b);
            }
        }
    }
}

/// Returns four random words of a counter (Salmon et al. 2011, Philox4x32-10).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [a, b] =
            [u64::from(counter[0]) * u64::from(MULTIPLIERS[0]), u64::from(counter[2]) * u64::from(MULTIPLIERS[1])];
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Returns two independent normal values of two random words (Box and Muller).
fn gaussian(a: u32, b: u32) -> [f32; 2] {
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    let radius = (-2.0 * (((a >> 8) as f32 + 0.5) * UNIT).ln()).sqrt();
    let (sin, cos) = (TAU * ((b >> 8) as f32 * UNIT)).sin_cos();
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_its_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn noise_is_normal_and_depends_on_its_place_alone() {
        let draw = |seed, sentence, frame| {
            let mut bins = [[0.0; 2]; 601];
            Noise::new(seed, sentence).frame(frame, &mut bins);
            bins
        };
        assert_eq!(draw(7, 1, 5), draw(7, 1, 5));
        assert!([draw(8, 1, 5), draw(7, 2, 5), draw(7, 1, 6)].iter().all(|other| *other != draw(7, 1, 5)));
        let values: Vec<f32> = (0..100).flat_map(|frame| draw(3, 0, frame)).flatten().collect();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
