//! Choosing the next token.
//!
//! The order of things: repetition, presence and frequency penalties; logit biases; temperature; the k likeliest;
//! those not too unlikely beside the likeliest (min-p); the likeliest that reach a probability together (top-p, of what
//! is left then); one draw. Log-probabilities are those of the logits as they came, before any of this.
//!
//! The draw's random number is a function of the step's name alone, so whoever repeats a step gets the same token.

mod filter;
mod penalty;
mod select;

use mstar_contract::Sampling;

use crate::random;
use filter::Filter;
pub use penalty::History;
use select::{argmax, exp, likeliest};

/// How one request's tokens are chosen.
#[derive(Clone, Debug)]
pub struct Sampler {
    filter: Filter,
    temperature: f32,
    repetition: f32,
    presence: f32,
    frequency: f32,
    bias: Vec<(u32, f32)>,
    /// How many of the likeliest tokens to report, when log-probabilities are wanted.
    logprobs: Option<usize>,
}

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The token.
    pub token: u32,
    /// How likely it and others were, when that is wanted.
    pub logprobs: Option<Logprobs>,
}

/// Natural logarithms of probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// Of the likeliest tokens, falling.
    pub top: Vec<(u32, f32)>,
}

// --- impl Sampler ---

impl Sampler {
    /// Takes from `defaults` what the request leaves open, and what does nothing where both do.
    pub fn new(wanted: &Sampling, defaults: &Sampling) -> Self {
        let or = |wanted: Option<f32>, default: Option<f32>, neutral| wanted.or(default).unwrap_or(neutral);
        let bias = if wanted.logit_bias.is_empty() { &defaults.logit_bias } else { &wanted.logit_bias };
        Self {
            filter: Filter {
                top_k: wanted.top_k.or(defaults.top_k).unwrap_or(0) as usize,
                top_p: or(wanted.top_p, defaults.top_p, 1.0),
                min_p: or(wanted.min_p, defaults.min_p, 0.0),
            },
            temperature: or(wanted.temperature, defaults.temperature, 1.0),
            repetition: or(wanted.repetition_penalty, defaults.repetition_penalty, 1.0),
            presence: or(wanted.presence_penalty, defaults.presence_penalty, 0.0),
            frequency: or(wanted.frequency_penalty, defaults.frequency_penalty, 0.0),
            bias: bias.iter().map(|(&token, &bias)| (token, bias)).collect(),
            logprobs: wanted.logprobs.or(defaults.logprobs).map(usize::from),
        }
    }

    /// Returns whether the choice depends on the tokens before, so that a [`History`] must be kept.
    pub fn looks_back(&self) -> bool {
        self.repetition != 1.0 || self.presence != 0.0 || self.frequency != 0.0
    }

    /// Chooses a token, or none when no logit is a number. The logits are left as penalties and biases made them.
    pub fn pick(&self, logits: &mut [f32], history: &History, draw: u64) -> Option<Pick> {
        let reported = self.logprobs.map(|count| Reported::of(logits, count));
        self.bend(logits, history);
        let token = self.choose(logits, draw)?;
        Some(Pick { token, logprobs: reported.map(|reported| reported.of_token(token)) })
    }

    fn bend(&self, logits: &mut [f32], history: &History) {
        if self.looks_back() {
            for (token, seen) in history.seen() {
                let Some(logit) = logits.get_mut(token as usize) else { continue };
                *logit = if *logit > 0.0 { *logit / self.repetition } else { *logit * self.repetition };
                if seen > 0 {
                    *logit -= self.presence + self.frequency * seen as f32;
                }
            }
        }
        for &(token, bias) in &self.bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
    }

    fn choose(&self, logits: &[f32], draw: u64) -> Option<u32> {
        let (best, most) = argmax(logits)?;
        if self.temperature <= 0.0 || self.filter.top_k == 1 || most == f32::INFINITY {
            return Some(best);
        }
        let kept = self.filter.keep(logits, most, 1.0 / self.temperature);
        kept.at(random::unit(draw, 0))
    }
}

/// The logits as they came, kept for a report.
struct Reported {
    logits: Vec<f32>,
    log_total: f32,
    top: Vec<(u32, f32)>,
}

// --- impl Reported ---

impl Reported {
    fn of(logits: &[f32], count: usize) -> Self {
        let most = argmax(logits).map_or(0.0, |(_, most)| most);
        let total: f64 = logits.iter().filter(|l| !l.is_nan()).map(|&l| f64::from(exp(l - most))).sum();
        let log_total = most + total.ln() as f32;
        let top = likeliest(logits, count).into_iter().map(|(token, logit)| (token, logit - log_total)).collect();
        Self { logits: logits.to_vec(), log_total, top }
    }

    fn of_token(self, token: u32) -> Logprobs {
        Logprobs { chosen: self.logits[token as usize] - self.log_total, top: self.top }
    }
}

#[cfg(test)]
mod tests;
