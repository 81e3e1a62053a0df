//! The voice's source: a band-limited pulse train that follows the pitch.

use std::f64::consts::TAU;

use super::{HOP, SAMPLE_RATE};

/// Below this pitch a frame is unvoiced.
const VOICED_HZ: f32 = 40.0;
/// Harmonics reach up to here.
const TOP_HZ: f32 = 11_000.0;
/// Where the closed form of the sum divides by almost nothing, its limit stands in.
const NEAR_ZERO: f32 = 2e-3;

/// Makes the pulse train frame by frame; the phase runs on from one to the next.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    /// The pitch summed over all samples so far.
    turns_hz: f64,
}

impl Pulses {
    /// Appends a frame of samples, given the pitch of the frame before, of this one and of the next (an end
    /// repeats itself). Every harmonic below 11 kHz has unit amplitude:
    /// `sum over h <= H of cos(h t) = sin((H + 1/2) t) / (2 sin(t/2)) - 1/2`.
    pub fn frame(&mut self, [before, here, after]: [f32; 3], samples: &mut Vec<f32>) {
        for j in 0..HOP {
            // Sample j lies between two frame centres.
            let place = ((j as f64 + 0.5) / HOP as f64 - 0.5).rem_euclid(1.0) as f32;
            let (from, to) = if j < HOP / 2 { (before, here) } else { (here, after) };
            let pitch = from * (1.0 - place) + to * place;
            samples.push(self.sample(pitch));
        }
    }

    fn sample(&mut self, pitch: f32) -> f32 {
        let clamped = pitch.max(VOICED_HZ);
        self.turns_hz += f64::from(clamped);
        let phase = ((self.turns_hz * (1.0 / f64::from(SAMPLE_RATE))).fract() * TAU) as f32;
        if pitch.is_nan() || pitch <= VOICED_HZ {
            return 0.0;
        }
        let harmonics = (TOP_HZ / clamped).floor() + 0.5;
        let half = 2.0 * (phase * 0.5).sin();
        let sum = if half.abs() <= NEAR_ZERO { harmonics } else { (harmonics * phase).sin() / half };
        sum - 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_pitch_pulses_once_a_period_and_silence_is_silent() {
        let (mut pulses, mut samples) = (Pulses::default(), Vec::new());
        for _ in 0..8 {
            pulses.frame([240.0; 3], &mut samples);
        }
        let peaks: Vec<usize> = (0..samples.len()).filter(|&i| samples[i] > 30.0).collect();
        assert!(peaks.windows(2).all(|pair| pair[1] - pair[0] == 100), "{peaks:?}");
        samples.clear();
        pulses.frame([0.0; 3], &mut samples);
        assert!(samples.len() == HOP && samples.iter().all(|&s| s == 0.0));
    }
}
