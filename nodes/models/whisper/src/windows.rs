//! From a window's tokens to segments, and to where the next window begins.
//!
//! After `transcribe.py` of OpenAI's whisper: two timestamps in a row end a segment, and what follows the last such
//! pair is heard again by the next window; a window without them is one segment.

use mstar_kernels::ops::MEL_HOP;

/// Frames of log-mel per step of a timestamp.
const FRAMES_PER_STEP: usize = 2;
/// Frames per second.
pub(crate) const FRAMES_PER_SECOND: usize = 100;

/// Rounds of the same tokens that nobody says by intention.
const LEAST_ROUNDS: usize = 5;

/// Frames over which loudness is measured.
const BLOCK_FRAMES: usize = 10;
/// The share of the loudest block's power that is near it: 20 dB below.
const NEAR_LOUDEST: f32 = 0.01;
/// Frames left in front of the loud part: a word may begin softly.
const LEAD_FRAMES: usize = 30;
/// A silence of fewer frames hides nothing.
const LONG_SILENCE: usize = FRAMES_PER_SECOND;

/// A part of a window: some of its tokens and when they are said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it begins, in frames from the window's start.
    pub(crate) start: usize,
    /// Where it ends.
    pub(crate) end: usize,
    /// Its tokens, without timestamps.
    pub(crate) tokens: Vec<u32>,
}

/// What a window's tokens say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Its segments.
    pub(crate) segments: Vec<Segment>,
    /// How many frames later the next window begins; never zero.
    pub(crate) advance: usize,
}

/// Cuts the tokens of a window that has `frames` frames of audio; tokens from `first_time` on are timestamps.
pub(crate) fn cut(tokens: &[u32], first_time: u32, frames: usize) -> Cut {
    let is_time = |token: &u32| *token >= first_time;
    let frame = |token: u32| ((token - first_time) as usize * FRAMES_PER_STEP).min(frames);
    let mut ends: Vec<usize> = (1..tokens.len()).filter(|&i| is_time(&tokens[i - 1]) && is_time(&tokens[i])).collect();
    let closes = matches!(tokens, [.., before, last] if !is_time(before) && is_time(last));
    let words = |tokens: &[u32]| -> Vec<u32> { tokens.iter().copied().filter(|token| !is_time(token)).collect() };
    if ends.is_empty() {
        let last = tokens.iter().rev().find(|token| is_time(token)).map_or(0, |&token| frame(token));
        let end = if last > 0 { last } else { frames };
        let segments = vec![Segment { start: 0, end, tokens: words(tokens) }];
        return Cut { segments, advance: frames.max(1) };
    }
    if closes {
        ends.push(tokens.len());
    }
    let mut segments = Vec::with_capacity(ends.len());
    let mut from = 0;
    for &end in &ends {
        let part = &tokens[from..end];
        let time = |token: Option<&u32>, or: usize| token.filter(|t| is_time(t)).map_or(or, |&t| frame(t));
        let start = time(part.first(), 0);
        segments.push(Segment { start, end: time(part.last(), frames).max(start), tokens: words(part) });
        from = end;
    }
    // After a lone closing time nothing more is said; otherwise the next window begins where the last pair stands.
    let heard = if closes { frames } else { frame(tokens[from - 1]) };
    let advance = if heard == 0 { frames } else { heard };
    Cut { segments, advance: advance.max(1) }
}

/// Leaves one round of what tokens repeat at their end, if they repeat it often enough to be stuck in it.
pub(crate) fn without_loop(tokens: &mut Vec<u32>) {
    for period in 1..=tokens.len() / LEAST_ROUNDS {
        let repeated = |&i: &usize| tokens[i] == tokens[i + period];
        let run = (0..tokens.len() - period).rev().take_while(repeated).count();
        if run + period >= LEAST_ROUNDS * period {
            tokens.truncate(tokens.len() - run);
            return;
        }
    }
}

/// Returns the frame at which the loud part of some samples begins: where they first come near their loudest.
pub(crate) fn onset(samples: &[f32]) -> usize {
    let power = |block: &[f32]| block.iter().map(|x| x * x).sum::<f32>();
    let blocks: Vec<f32> = samples.chunks(BLOCK_FRAMES * MEL_HOP).map(power).collect();
    let loudest = blocks.iter().copied().fold(0.0, f32::max);
    BLOCK_FRAMES * blocks.iter().position(|&block| block >= NEAR_LOUDEST * loudest).unwrap_or(0)
}

/// Returns how many frames later the next window begins where nothing was said in this one: shortly before the loud
/// part, if that is far from the start. A silence so long may have hidden what is said behind it.
pub(crate) fn past_silence(onset: usize, advance: usize) -> usize {
    match onset.saturating_sub(LEAD_FRAMES) {
        near if near < LONG_SILENCE => advance,
        far => far.min(advance),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: u32 = 100;

    fn segment(start: usize, end: usize, tokens: &[u32]) -> Segment {
        Segment { start, end, tokens: tokens.to_vec() }
    }

    fn check(tokens: &[u32], segments: &[Segment], advance: usize) {
        assert_eq!(cut(tokens, TIME, 1000), Cut { segments: segments.to_vec(), advance });
    }

    #[test]
    fn text_without_times_is_one_segment() {
        check(&[1, 2], &[segment(0, 1000, &[1, 2])], 1000);
        check(&[], &[segment(0, 1000, &[])], 1000);
        check(&[100, 1, 2], &[segment(0, 1000, &[1, 2])], 1000);
        check(&[100, 1, 2, 150], &[segment(0, 100, &[1, 2])], 1000);
    }

    #[test]
    fn pairs_of_times_end_segments_and_the_rest_is_heard_again() {
        check(&[100, 1, 150, 150, 2, 200, 210, 3], &[segment(0, 100, &[1]), segment(100, 200, &[2])], 200);
    }

    #[test]
    fn a_lone_closing_time_ends_the_last_segment_and_the_window() {
        check(&[100, 1, 150, 160, 2, 200], &[segment(0, 100, &[1]), segment(120, 200, &[2])], 1000);
    }

    #[test]
    fn a_window_that_would_not_move_moves_as_a_whole() {
        check(&[100, 100], &[segment(0, 0, &[])], 1000);
    }

    #[test]
    fn what_goes_round_in_circles_is_said_once() {
        let check = |tokens: &[u32], expected: &[u32]| {
            let mut tokens = tokens.to_vec();
            without_loop(&mut tokens);
            assert_eq!(tokens, expected);
        };
        check(&[], &[]);
        check(&[1, 2, 7, 7, 7, 7], &[1, 2, 7, 7, 7, 7]);
        check(&[1, 2, 7, 7, 7, 7, 7], &[1, 2, 7]);
        check(&[[1, 2].as_slice(), &[5, 6, 7].repeat(6), &[5, 6]].concat(), &[1, 2, 5, 6, 7]);
        check(&[[1, 2].as_slice(), &[5, 6, 7].repeat(4)].concat(), &[[1, 2].as_slice(), &[5, 6, 7].repeat(4)].concat());
    }

    #[test]
    fn the_loud_part_begins_where_samples_come_near_their_loudest() {
        let samples = |parts: &[(usize, f32)]| -> Vec<f32> {
            parts.iter().flat_map(|&(frames, level)| std::iter::repeat_n(level, frames * MEL_HOP)).collect()
        };
        assert_eq!(onset(&samples(&[(500, 0.01), (200, 0.5), (300, 0.01)])), 500);
        assert_eq!(onset(&samples(&[(500, 0.1), (200, 0.5)])), 0);
        assert_eq!((onset(&[]), onset(&[0.0; 5000])), (0, 0));
    }

    #[test]
    fn a_silent_window_is_left_shortly_before_its_loud_part_if_that_is_far() {
        assert_eq!(past_silence(2_500, 3_000), 2_470);
        assert_eq!(past_silence(120, 3_000), 3_000);
        assert_eq!(past_silence(0, 3_000), 3_000);
    }

    proptest! {
        #[test]
        fn a_window_always_moves_and_segments_stay_within_it(
            tokens in prop::collection::vec(0u32..200, 0..30), frames in 0usize..3001,
        ) {
            let cut = cut(&tokens, TIME, frames);
            prop_assert!(cut.advance >= 1 && cut.advance <= frames.max(1));
            for segment in cut.segments {
                prop_assert!(segment.start <= segment.end && segment.end <= frames);
                prop_assert!(segment.tokens.iter().all(|&token| token < TIME));
            }
        }
    }
}
