//! The greatest of many numbers. Of equal ones the first counts; what is not a number never does.

use std::cmp::Ordering;

/// Returns the place of the greatest logit, and the logit; nothing when all are NaN or minus infinity.
pub(super) fn argmax(logits: &[f32]) -> Option<(u32, f32)> {
    // Sixteen running maxima, then the first place that holds the greatest of them.
    let (whole, rest) = logits.as_chunks::<16>();
    let mut lanes = [f32::NEG_INFINITY; 16];
    for part in whole {
        for (lane, &x) in lanes.iter_mut().zip(part) {
            *lane = if x > *lane { x } else { *lane };
        }
    }
    let most = lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|&x| x == most).map(|place| (place as u32, most))
}

/// Returns the `count` greatest logits with their places, falling; fewer when fewer are numbers.
///
/// One pass that keeps few candidates: most logits fail one comparison with the least that could still count.
pub(super) fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut held: Vec<(u32, f32)> = Vec::new();
    let room = count + count.max(256);
    let mut least = f32::NEG_INFINITY;
    if count == 0 {
        return held;
    }
    for (first, part) in (0..).step_by(16).zip(logits.chunks(16)) {
        if !part.iter().fold(false, |any, &logit| any | (logit > least)) {
            continue;
        }
        held.extend((first..).zip(part).filter(|&(_, &logit)| logit > least).map(|(place, &logit)| (place, logit)));
        if held.len() >= room {
            held.select_nth_unstable_by(count - 1, falling);
            held.truncate(count);
            least = held[count - 1].1;
        }
    }
    held.sort_unstable_by(falling);
    held.truncate(count);
    held
}

/// Orders by falling number, then by rising place.
pub(super) fn falling(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal).then(a.0.cmp(&b.0))
}

/// Returns e to the power of `x` for `x` up to zero, to about one part in ten million; zero below -87.
///
/// Written out so that it is the same on every machine and runs many at a time.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > -87.0 { x } else { -87.0 };
    // Adding and taking away 1.5 * 2^23 rounds to a whole number; its low bits are that number.
    let shifted = clamped * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.987_569_1e-4_f32;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    let scale = f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23);
    if x > -87.0 { value * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_first_and_nan_never_wins() {
        assert_eq!(argmax(&[f32::NAN, 1.0, 2.0, 2.0]), Some((2, 2.0)));
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(argmax(&[]), None);
        assert_eq!(likeliest(&[f32::NAN, 1.0, 2.0, 2.0], 2), [(2, 2.0), (3, 2.0)]);
        assert_eq!(likeliest(&[f32::NAN, 1.0], 9), [(1, 1.0)]);
    }

    #[test]
    fn exp_is_exact_to_seven_digits() {
        for i in 0..87_000 {
            let x = -(i as f32) / 1000.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 3e-7, "{x}: {} {exact}", exp(x));
        }
        assert_eq!((exp(0.0), exp(-90.0), exp(f32::NEG_INFINITY)), (1.0, 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn the_likeliest_are_the_head_of_the_sorted(
            logits in prop::collection::vec((-20i8..20).prop_map(f32::from), 1..3000),
            count in 0usize..400,
        ) {
            let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.sort_by(falling);
            prop_assert_eq!(argmax(&logits), Some(sorted[0]));
            sorted.truncate(count);
            prop_assert_eq!(likeliest(&logits, count), sorted);
        }
    }
}
