//! The voice's source: a band-limited pulse train that follows the pitch.

use std::f64::consts::TAU;

use mstar_kernels::{Cx, KernelError, Tensor, ops};

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

/// Where a sample stands in its period.
struct Place {
    phase: f32,
    /// How many harmonics there are, plus a half; none where the voice is silent.
    harmonics: f32,
}

impl Pulses {
    /// Returns the samples of some frames, given for each the pitch of the frame before, of this one and of the next (an
    /// end repeats itself). Every harmonic below 11 kHz has unit amplitude:
    /// `sum over h <= H of cos(h t) = sin((H + 1/2) t) / (2 sin(t/2)) - 1/2`.
    pub fn frames(&mut self, cx: &Cx, pitches: &[[f32; 3]]) -> Result<Vec<f32>, KernelError> {
        let places: Vec<Place> = pitches.iter().flat_map(|around| self.places(*around)).collect();
        let halves = places.iter().map(|place| place.phase * 0.5);
        let wholes = places.iter().map(|place| place.harmonics * place.phase);
        let sines = ops::sin(cx, &Tensor::from_f32(halves.chain(wholes).collect(), [2, places.len()])?)?;
        let (halves, wholes) = sines.f32s()?.split_at(places.len());
        let samples = places.iter().zip(halves.iter().zip(wholes)).map(|(place, (half, whole))| {
            let half = 2.0 * half;
            match place.harmonics {
                0.0 => 0.0,
                harmonics if half.abs() <= NEAR_ZERO => harmonics - 0.5,
                _ => whole / half - 0.5,
            }
        });
        Ok(samples.collect())
    }

    fn places(&mut self, [before, here, after]: [f32; 3]) -> [Place; HOP] {
        std::array::from_fn(|j| {
            // Sample j lies between two frame centres.
            let place = (j as f64 + 0.5) / HOP as f64 - 0.5;
            let (from, to, start) = if j < HOP / 2 { (before, here, -1.0) } else { (here, after, 0.0) };
            let between = (place - start) as f32;
            let pitch = from * (1.0 - between) + to * between;
            let clamped = pitch.max(VOICED_HZ);
            self.turns_hz += f64::from(clamped);
            let turns = self.turns_hz * (1.0 / f64::from(SAMPLE_RATE));
            // Casts cut off what follows the point, faster than the functions that are made for it.
            let phase = ((turns - turns as u64 as f64) * TAU) as f32;
            // What is not a number is no pitch either.
            let harmonics = if pitch > VOICED_HZ { (TOP_HZ / clamped) as u32 as f32 + 0.5 } else { 0.0 };
            Place { phase, harmonics }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_pitch_pulses_once_a_period_and_silence_is_silent() {
        let cx = Cx::with_threads(1).unwrap();
        let mut pulses = Pulses::default();
        let samples = pulses.frames(&cx, &[[240.0; 3]; 8]).unwrap();
        let peaks: Vec<usize> = (0..samples.len()).filter(|&i| samples[i] > 30.0).collect();
        assert!(peaks.len() > 10 && peaks.windows(2).all(|pair| pair[1] - pair[0] == 100), "{peaks:?}");
        for silent in [0.0, f32::NAN] {
            let samples = pulses.frames(&cx, &[[silent; 3]]).unwrap();
            assert!(samples.len() == HOP && samples.iter().all(|&s| s == 0.0));
        }
    }

    #[test]
    fn a_frame_is_the_same_alone_and_among_others() {
        let cx = Cx::with_threads(2).unwrap();
        let pitches: Vec<[f32; 3]> = (0..9).map(|i| [100.0 + i as f32, 101.0 + i as f32, 102.0 + i as f32]).collect();
        let whole = Pulses::default().frames(&cx, &pitches).unwrap();
        let mut pulses = Pulses::default();
        let parts = pitches.chunks(2).map(|part| pulses.frames(&cx, part).unwrap());
        assert_eq!(parts.collect::<Vec<_>>().concat(), whole);
    }
}
