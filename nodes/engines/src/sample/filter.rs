//! Which tokens a draw may fall on.
//!
//! The nucleus of top-p is found without sorting: weights are counted into buckets by their leading bits, whole
//! buckets are kept from the top down, and only the one where the sum is reached is sorted.

use super::select::{exp, falling, likeliest};

/// Buckets of weights from 0 to 1: eight per power of two.
const BUCKETS: usize = (bucket(1.0) + 1) as usize;

/// Bounds on what may be drawn; each does nothing at its neutral value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Filter {
    /// Keeps the k likeliest tokens; 0 keeps all.
    pub(super) top_k: usize,
    /// Keeps the likeliest tokens whose probabilities reach this together; 1 keeps all.
    pub(super) top_p: f32,
    /// Drops tokens less likely than this share of the likeliest; 0 drops none.
    pub(super) min_p: f32,
}

/// What may be drawn, with weights relative to the likeliest.
pub(super) struct Kept {
    /// The tokens that the weights belong to; without it they belong to tokens 0, 1, 2 and so on.
    tokens: Option<Vec<u32>>,
    weights: Vec<f32>,
}

// --- impl Filter ---

impl Filter {
    /// Returns what may be drawn. `most` is the greatest logit, `sharpness` one over the temperature.
    pub(super) fn keep(&self, logits: &[f32], most: f32, sharpness: f32) -> Kept {
        let weight = |logit: f32| {
            let weight = exp((logit - most) * sharpness);
            if weight >= self.min_p { weight } else { 0.0 }
        };
        if self.top_k > 0 && self.top_k < logits.len() {
            let (tokens, mut weights): (Vec<u32>, Vec<f32>) =
                likeliest(logits, self.top_k).into_iter().map(|(token, logit)| (token, weight(logit))).unzip();
            self.cut(&mut weights);
            return Kept { tokens: Some(tokens), weights };
        }
        let mut kept = Kept { tokens: None, weights: logits.iter().map(|&logit| weight(logit)).collect() };
        self.cut(&mut kept.weights);
        kept
    }

    /// Sets all weights outside of the nucleus to zero. Of equal weights the first are in it.
    fn cut(&self, weights: &mut [f32]) {
        if self.top_p >= 1.0 {
            return;
        }
        let mut sums = [0.0f64; BUCKETS];
        for &weight in &*weights {
            sums[bucket(weight) as usize] += f64::from(weight);
        }
        let enough = f64::from(self.top_p.max(0.0)) * sums.iter().sum::<f64>();
        let mut reached = 0.0;
        let last = (0..BUCKETS).rev().find(|&bucket| {
            reached += sums[bucket];
            reached >= enough && reached > 0.0
        });
        let Some(last) = last else { return };
        let mut border: Vec<(u32, f32)> =
            (0..).zip(&*weights).filter(|&(_, &w)| bucket(w) as usize == last).map(|(place, &w)| (place, w)).collect();
        border.sort_unstable_by(falling);
        reached -= sums[last];
        let in_it = border.iter().position(|&(_, weight)| {
            reached += f64::from(weight);
            reached >= enough
        });
        for &(place, _) in border.iter().skip(in_it.map_or(border.len(), |place| place + 1)) {
            weights[place as usize] = 0.0;
        }
        weights.iter_mut().filter(|weight| (bucket(**weight) as usize) < last).for_each(|weight| *weight = 0.0);
    }
}

/// Returns the bucket of a weight; greater weights have no lesser bucket.
const fn bucket(weight: f32) -> u32 {
    weight.to_bits() >> 20
}

// --- impl Kept ---

impl Kept {
    /// Returns the token at this share, from 0 up to 1, of all weight.
    pub(super) fn at(&self, share: f64) -> Option<u32> {
        let target = share * sum(&self.weights);
        let mut reached = 0.0;
        let hit = self.weights.iter().position(|&weight| {
            reached += f64::from(weight);
            reached > target
        });
        // Sums in another order may leave a last bit beyond the last weight.
        let place = hit.or_else(|| self.weights.iter().rposition(|&weight| weight > 0.0))?;
        Some(self.tokens.as_ref().map_or(place as u32, |tokens| tokens[place]))
    }

    /// Returns the tokens that may be drawn, with their weights.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> Vec<(u32, f32)> {
        let token = |place: usize| self.tokens.as_ref().map_or(place as u32, |tokens| tokens[place]);
        let pairs = self.weights.iter().enumerate().map(|(place, &weight)| (token(place), weight));
        pairs.filter(|&(_, weight)| weight > 0.0).collect()
    }
}

/// Adds up weights, eight sums side by side.
fn sum(weights: &[f32]) -> f64 {
    let (whole, rest) = weights.as_chunks::<8>();
    let mut lanes = [0.0f64; 8];
    for part in whole {
        for (lane, &weight) in lanes.iter_mut().zip(part) {
            *lane += f64::from(weight);
        }
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&weight| f64::from(weight)).sum::<f64>()
}
