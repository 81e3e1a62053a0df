//! Which tokens a draw may fall on.

use super::select::{exp, falling, likeliest};

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

/// A token and how likely it is, relative to the likeliest.
pub(super) type Weighted = (u32, f32);

// --- impl Filter ---

impl Filter {
    /// Returns the tokens that may be drawn. `most` is the greatest logit, `sharpness` one over the temperature.
    pub(super) fn keep(&self, logits: &[f32], most: f32, sharpness: f32) -> Vec<Weighted> {
        let weight = |logit: f32| exp((logit - most) * sharpness);
        let wanted = |weight: f32| weight > 0.0 && weight >= self.min_p;
        if self.top_k > 0 && self.top_k < logits.len() {
            let head = likeliest(logits, self.top_k).into_iter().map(|(token, logit)| (token, weight(logit)));
            let mut kept: Vec<Weighted> = head.filter(|&(_, weight)| wanted(weight)).collect();
            if self.top_p < 1.0 {
                let total = sum(&kept);
                kept.truncate(self.nucleus(&kept, total).unwrap_or(kept.len()));
            }
            return kept;
        }
        let weights: Vec<f32> = logits.iter().map(|&logit| weight(logit)).collect();
        let mut kept: Vec<Weighted> = (0..).zip(weights).filter(|&(_, weight)| wanted(weight)).collect();
        if self.top_p < 1.0 {
            self.cut(&mut kept);
        }
        kept
    }

    /// Keeps the nucleus of what is left, falling. Few tokens mostly reach it, so few are sorted at first.
    fn cut(&self, kept: &mut Vec<Weighted>) {
        let total = sum(kept);
        let mut head = 64;
        while head < kept.len() {
            kept.select_nth_unstable_by(head, falling);
            kept[..head].sort_unstable_by(falling);
            if let Some(count) = self.nucleus(&kept[..head], total) {
                return kept.truncate(count);
            }
            head *= 8;
        }
        kept.sort_unstable_by(falling);
        if let Some(count) = self.nucleus(kept, total) {
            kept.truncate(count);
        }
    }

    /// Returns how many of the falling `head` it takes to reach the share of `total`, if they do.
    fn nucleus(&self, head: &[Weighted], total: f64) -> Option<usize> {
        let enough = f64::from(self.top_p.max(0.0)) * total;
        let mut sum = 0.0;
        let last = head.iter().position(|&(_, weight)| {
            sum += f64::from(weight);
            sum >= enough
        });
        last.map(|place| place + 1)
    }
}

fn sum(kept: &[Weighted]) -> f64 {
    kept.iter().map(|&(_, weight)| f64::from(weight)).sum()
}
