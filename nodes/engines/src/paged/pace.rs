//! How much of waiting prompts goes into a pass, so that those who are in the middle of their replies hardly notice:
//! a pass with a piece of a prompt takes at most [`STRETCH`] times what it takes without, and more only where more wait
//! than reply. Learnt from the times of the passes themselves. Rows do not depend on how prompts are cut, so the clock
//! may decide it. Pure.

use std::time::Duration;

/// What a pass appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Rows that append one token.
    pub(super) steps: usize,
    /// Tokens of prompts.
    pub(super) prompt: usize,
    /// Tokens of prompts that there was room for.
    pub(super) room: usize,
}

/// Who would be in the next pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    /// Rows that append one token.
    pub(super) steps: usize,
    /// Others who are in the middle of their replies and may want the next one.
    pub(super) away: usize,
    /// Prompts that are not read to their end.
    pub(super) prompts: usize,
}

/// What passes were seen to take.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// By their number: passes of so many steps and nothing else.
    alone: Vec<Option<Seen>>,
    /// Seconds that a token of a prompt adds to a pass.
    token: Option<f64>,
    /// Tokens of prompts that the last passes with both had, where they had as many as there was room for.
    last: usize,
    /// Passes with something of a prompt so far.
    mixed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    seconds: f64,
    /// What [`Pace::mixed`] was then.
    at: u64,
}

/// By how much a piece of a prompt may lengthen a pass. A gap of twice the usual one is what nobody shall see; the rest
/// is for what the way to the walker and back takes, and for what the estimate misses.
const STRETCH: f64 = 1.7;
/// Tokens of a prompt that go along as long as it is not known what they cost.
const FIRST: usize = 4;
/// By how much the piece may grow from one pass to the next: what a token costs depends on how many there are.
const GROWTH: f64 = 1.25;
/// Passes with something of a prompt, after which one goes without, to see again what that takes.
const STALE: u64 = 64;
/// How much of the difference is believed when a pass was faster than thought.
const FASTER: f64 = 0.2;
/// Most by which a pass is believed to be slower than thought: more is somebody else's doing.
const OUTLIER: f64 = 3.0;

// --- impl Pace ---

impl Pace {
    /// Returns how many tokens of prompts may go into the next pass: one at least, unless it must first be seen what a
    /// pass takes without.
    pub(super) fn prompt_tokens(&self, crowd: Crowd) -> usize {
        let Crowd { steps, away, prompts } = crowd;
        if steps + away == 0 {
            return usize::MAX;
        }
        let beside = if steps > 0 { steps } else { away };
        let (base, token) = match (self.known(beside), self.token) {
            // First it must be seen what a pass takes without.
            (None, _) if steps > 0 => return 0,
            (Some(base), Some(token)) => (base, token),
            _ => return FIRST,
        };
        let spent = if steps > 0 { base } else { 0.0 };
        // Where many wait for their first token and few for their next, the few wait in proportion.
        let waiting = (prompts as f64 / (steps + away) as f64).max(1.0);
        let bearable = base + (STRETCH - 1.0) * base * waiting;
        let affordable = ((bearable - spent) / token) as usize;
        let grown = (self.last.max(1) as f64 * GROWTH).ceil() as usize;
        affordable.min(grown).max(1)
    }

    /// Takes note of how long a pass took.
    pub(super) fn note(&mut self, load: Load, took: Duration) {
        let seconds = took.as_secs_f64();
        match load {
            Load { steps: 0, prompt: 0, .. } => {}
            Load { steps, prompt: 0, .. } => self.saw_steps(steps, seconds),
            Load { steps: 0, prompt, .. } => {
                // It waited for the weights on account of its few tokens alone: that bounds what one costs.
                let each = seconds / prompt as f64;
                self.token = Some(self.token.map_or(each, |token| token.min(each)));
                self.mixed += 1;
            }
            Load { steps, prompt, room } => {
                self.mixed += 1;
                let base = self.known(steps);
                // What is left of a prompt tells little: a few tokens bear all that any prompt costs, and the next
                // prompt has more of them.
                let rest = prompt < room && prompt < self.last / 2;
                if rest && self.token.is_some() {
                    return;
                }
                if let Some(base) = base {
                    let added = (seconds - base).clamp(base * 1e-3, base * OUTLIER);
                    self.token = Some(believed(self.token, added / prompt as f64));
                }
                self.last = if prompt < room { self.last.max(prompt) } else { prompt };
            }
        }
    }

    fn saw_steps(&mut self, steps: usize, seconds: f64) {
        if self.alone.len() <= steps {
            self.alone.resize(steps + 1, None);
        }
        let before = self.alone[steps].map(|seen| seen.seconds);
        let bounded = before.map_or(seconds, |before| seconds.min(before * OUTLIER));
        // Slower passes are doubted: a base that is too high would let everybody wait.
        let seconds = before.map_or(bounded, |before| before + FASTER * (bounded - before));
        self.alone[steps] = Some(Seen { seconds, at: self.mixed });
    }

    /// Returns what a pass of so many steps alone takes: what it took lately, or one of nearly as many.
    fn known(&self, steps: usize) -> Option<f64> {
        let seen = self.alone.iter().enumerate().filter_map(|(n, seen)| Some((n, (*seen)?)));
        let near = seen.filter(|(n, _)| n.abs_diff(steps) <= (steps / 4).max(1));
        let fresh = near.filter(|(_, seen)| self.mixed - seen.at < STALE);
        fresh.min_by_key(|(n, _)| n.abs_diff(steps)).map(|(_, seen)| seen.seconds)
    }
}

/// Moves the cost of a token towards what was seen: at once when it is dearer than thought.
fn believed(before: Option<f64>, seen: f64) -> f64 {
    match before {
        Some(before) if seen < before => before + FASTER * (seen - before),
        _ => seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(steps: usize) -> Load {
        Load { steps, ..Load::default() }
    }

    /// One prompt beside so many steps.
    fn beside(steps: usize) -> Crowd {
        Crowd { steps, away: 0, prompts: 1 }
    }

    /// One prompt, and so many who may come back.
    fn between(away: usize) -> Crowd {
        Crowd { steps: 0, away, prompts: 1 }
    }

    /// A machine: what a pass takes, in milliseconds.
    type Machine = fn(usize, usize) -> f64;

    /// Lets prompts come to so many streams, one after the other, and returns the times of the passes before and after.
    fn prompts_come(machine: Machine, steps: usize, prompts: &[usize]) -> (Vec<f64>, Vec<(usize, f64)>) {
        let mut pace = Pace::default();
        let pass = |prompt: usize, room: usize, pace: &mut Pace| {
            let took = machine(steps, prompt);
            pace.note(Load { steps, prompt, room }, Duration::from_secs_f64(took / 1e3));
            took
        };
        let before = (0..20).map(|_| pass(0, 0, &mut pace)).collect();
        let mut after = Vec::new();
        for &prompt in prompts {
            let mut left = prompt;
            while left > 0 {
                let room = pace.prompt_tokens(beside(steps));
                let piece = room.min(left);
                left -= piece;
                after.push((piece, pass(piece, room, &mut pace)));
                assert!(after.len() < 20_000, "the prompt never ends");
            }
        }
        (before, after)
    }

    #[test]
    fn no_pass_with_a_prompt_takes_twice_as_long_as_one_without() {
        // What a pass waits for: the weights; arithmetic; the weights up to some rows, then arithmetic; a detour that
        // any prompt takes.
        let machines: [(&str, Machine); 5] = [
            ("memory", |_, prompt| 10.0 + prompt as f64 * 0.01),
            ("arithmetic", |steps, prompt| 2.0 + (steps + prompt) as f64 * 0.25),
            ("both", |steps, prompt| f64::max(10.0, (steps + prompt) as f64 * 0.3)),
            ("slow", |_, prompt| 26.0 + prompt as f64 * 4.5),
            ("detour", |_, prompt| 10.0 + if prompt > 0 { 2.0 + prompt as f64 * 0.05 } else { 0.0 }),
        ];
        for (name, machine) in machines {
            for steps in [1, 4, 15] {
                let (before, after) = prompts_come(machine, steps, &[4000]);
                let slowest = after.iter().map(|(_, took)| *took).fold(0.0, f64::max);
                // Where even the least piece takes longer, nothing else is added.
                let bound = machine(steps, 1).max(2.0 * before[0]);
                assert!(slowest <= bound, "{name} {steps}: {slowest} ms after {} ms", before[0]);
            }
        }
    }

    #[test]
    fn a_prompt_uses_the_time_that_it_may_take() {
        let (before, after) = prompts_come(|_, prompt| 10.0 + prompt as f64 * 0.05, 4, &[4000]);
        let settled = &after[after.len() / 2..after.len() - 1];
        let took: f64 = settled.iter().map(|(_, took)| took).sum();
        let mean = took / settled.len() as f64;
        assert!(mean > 1.5 * before[0] && mean < 1.8 * before[0], "{mean}");
    }

    #[test]
    fn nobody_in_the_middle_of_a_reply_means_no_bound() {
        let mut pace = Pace::default();
        assert_eq!(pace.prompt_tokens(between(0)), usize::MAX);
        assert_eq!(pace.prompt_tokens(between(2)), FIRST, "they may come any moment");
        pace.note(alone(2), Duration::from_millis(10));
        pace.note(Load { steps: 0, prompt: 100, room: 100 }, Duration::from_millis(50));
        pace.note(Load { steps: 2, prompt: 40, room: 40 }, Duration::from_millis(25));
        assert!((20..=60).contains(&pace.prompt_tokens(between(2))), "{}", pace.prompt_tokens(between(2)));
    }

    #[test]
    fn what_is_left_of_a_prompt_does_not_slow_down_the_next() {
        let machine: Machine = |_, prompt| if prompt > 0 { 12.0 + prompt as f64 * 0.05 } else { 10.0 };
        let settled = prompts_come(machine, 4, &[4000]).1.iter().map(|(piece, _)| *piece).max().unwrap_or(0);
        let (_, after) = prompts_come(machine, 4, &[4000, settled + 2, settled + 2, settled + 2]);
        let pieces: Vec<usize> = after.iter().map(|(piece, _)| *piece).filter(|piece| *piece > 0).collect();
        let last = &pieces[pieces.len() - 6..];
        assert!(last.chunks(2).all(|pair| pair[0] * 10 >= settled * 9), "{last:?} after pieces of {settled}");
    }

    #[test]
    fn many_who_wait_may_slow_down_a_few() {
        let mut pace = Pace::default();
        let ms = Duration::from_millis;
        (0..20).for_each(|_| pace.note(alone(2), ms(10)));
        (0..20).for_each(|_| pace.note(Load { steps: 2, prompt: 100, room: 100 }, ms(20)));
        let tokens = |prompts| pace.prompt_tokens(Crowd { steps: 2, away: 0, prompts });
        assert_eq!((tokens(1), tokens(2)), (70, 70));
        assert!((100..=105).contains(&tokens(3)));
        assert_eq!(tokens(20), 125, "it grows by a quarter from pass to pass");
    }

    #[test]
    fn what_a_pass_takes_without_a_prompt_is_looked_at_again() {
        let (_, after) = prompts_come(|_, prompt| 10.0 + prompt as f64, 4, &[4000]);
        let pauses = after.iter().filter(|(piece, _)| *piece == 0).count();
        let passes = after.len();
        assert!(pauses >= passes / 80 && pauses <= passes / 60, "{pauses} of {passes}");
    }

    #[test]
    fn steps_that_were_never_seen_alone_are_seen_alone_first() {
        let mut pace = Pace::default();
        pace.note(alone(1), Duration::from_millis(10));
        assert_eq!((pace.prompt_tokens(beside(2)), pace.prompt_tokens(beside(9))), (FIRST, 0));
    }

    #[test]
    fn one_slow_pass_does_not_stretch_the_others() {
        let mut pace = Pace::default();
        let ms = Duration::from_millis;
        (0..20).for_each(|_| pace.note(alone(4), ms(10)));
        (0..20).for_each(|_| pace.note(Load { steps: 4, prompt: 70, room: 70 }, ms(17)));
        let usual = pace.prompt_tokens(beside(4));
        pace.note(alone(4), ms(500));
        assert!(pace.prompt_tokens(beside(4)) < usual * 3);
        pace.note(Load { steps: 4, prompt: 70, room: 70 }, ms(500));
        assert!(pace.prompt_tokens(beside(4)) < usual);
    }
}
