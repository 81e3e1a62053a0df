//! What a token may follow: suppressed tokens, forced ones, and the grammar of timestamps.
//!
//! After `decoding.py` of OpenAI's whisper: timestamps come in pairs that enclose text, never fall, and one is forced
//! when all of them together are likelier than any text.

use crate::Specials;

/// What decoding is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOptions {
    /// Never samples what the checkpoint's settings suppress.
    pub suppress: bool,
    /// Translates to English where the task is not in the prompt yet.
    pub translate: bool,
}

/// Silence is likelier than this ...
const SILENCE: f32 = 0.6;
/// ... and neither first word nor first time has this log-probability: nobody speaks.
const DOUBT: f32 = -1.0;

// --- impl Specials ---

impl Specials {
    /// Bends the logits of the token after `prompt` and `sampled`.
    ///
    /// Where the prompt leaves language and task open, the first two tokens sampled are these, and times follow.
    pub fn constrain(&self, logits: &mut [f32], prompt: &[u32], sampled: &[u32], options: RuleOptions) {
        let open = self.multilingual() && prompt.last() == Some(&self.start);
        match (open, sampled.len()) {
            (true, 0) => {
                keep_only(logits, |token| self.language_of(token).is_some());
                return;
            }
            (true, 1) => {
                let task = if options.translate { self.translate } else { self.transcribe };
                keep_only(logits, |token| Some(token) == task);
                return;
            }
            _ => {}
        }
        let text = if open { &sampled[2..] } else { sampled };
        if options.suppress {
            forbid(logits, &self.suppressed);
            if text.is_empty() {
                forbid(logits, &self.suppressed_first);
            }
        }
        if self.no_timestamps.is_some() && prompt.last() != self.no_timestamps.as_ref() {
            self.time(logits, text);
        }
    }

    /// Returns whether no word was sampled yet.
    pub fn wordless(&self, prompt: &[u32], sampled: &[u32]) -> bool {
        let open = self.multilingual() && prompt.last() == Some(&self.start);
        let text = sampled.get(if open { 2 } else { 0 }..);
        text.is_some_and(|text| text.len() < 2 && text.iter().all(|&token| token >= self.first_timestamp()))
    }

    /// Ends the transcript before its first word when silence, of log-probability `silence`, is likely and no word is.
    pub fn hush(&self, logits: &mut [f32], silence: f32) {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if silence.exp() > SILENCE && best - log_sum(logits) < DOUBT {
            keep_only(logits, |token| token == self.end);
            if let Some(end) = logits.get_mut(self.end as usize) {
                *end = 0.0;
            }
        }
    }

    /// Applies the grammar of timestamps.
    fn time(&self, logits: &mut [f32], text: &[u32]) {
        let first = self.first_timestamp();
        let split = (first as usize).min(logits.len());
        forbid(logits, self.no_timestamps.as_slice());
        let is_time = |token: &u32| *token >= first;
        let last_is_time = text.last().is_some_and(is_time);
        let before_is_time = text.len() < 2 || is_time(&text[text.len() - 2]);
        if last_is_time && before_is_time {
            logits[split..].fill(f32::NEG_INFINITY);
        } else if last_is_time {
            logits[..split.min(self.end as usize)].fill(f32::NEG_INFINITY);
        }
        if let Some(&latest) = text.iter().rev().find(|token| is_time(token)) {
            // A segment may end where the next begins, but has some length itself.
            let least = if last_is_time && !before_is_time { latest } else { latest + 1 };
            let least = (least as usize).min(logits.len());
            logits[split..least.max(split)].fill(f32::NEG_INFINITY);
        }
        if text.is_empty() {
            logits[..split].fill(f32::NEG_INFINITY);
            let latest = (first.saturating_add(self.latest_first) as usize).saturating_add(1).min(logits.len());
            logits[latest..].fill(f32::NEG_INFINITY);
        }
        let likeliest_text = logits[..split].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum(&logits[split..]) > likeliest_text {
            logits[..split].fill(f32::NEG_INFINITY);
        }
    }
}

fn forbid(logits: &mut [f32], tokens: &[u32]) {
    for &token in tokens {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn keep_only(logits: &mut [f32], keep: impl Fn(u32) -> bool) {
    for (token, logit) in (0u32..).zip(logits) {
        if !keep(token) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Returns the logarithm of the sum of exponentials.
pub(crate) fn log_sum(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return most;
    }
    most + logits.iter().map(|&logit| (logit - most).exp()).sum::<f32>().ln()
}

#[cfg(test)]
mod tests;
