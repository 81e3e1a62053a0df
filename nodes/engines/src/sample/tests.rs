//! Sampling against its definition: filters, penalties, distributions, repeatability.

use proptest::prelude::*;

use super::*;

fn sampler(sampling: &Sampling) -> Sampler {
    Sampler::new(sampling, &Sampling::default())
}

fn pick(sampling: &Sampling, logits: &[f32], draw: u64) -> u32 {
    sampler(sampling).pick(&mut logits.to_vec(), &History::default(), draw).unwrap().token
}

/// The definition of the filters, with everything sorted.
fn naive(logits: &[f32], sharpness: f32, filter: Filter) -> Vec<(u32, f32)> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    all.sort_by(select::falling);
    if filter.top_k > 0 {
        all.truncate(filter.top_k);
    }
    let mut all: Vec<(u32, f32)> = all.into_iter().map(|(t, l)| (t, exp((l - most) * sharpness))).collect();
    all.retain(|&(_, weight)| weight > 0.0 && weight >= filter.min_p);
    // Logits that differ may weigh the same; then the likelier one counts where k cut, the first one here.
    if filter.top_k == 0 || filter.top_k >= logits.len() {
        all.sort_by(select::falling);
    }
    let total: f64 = all.iter().map(|&(_, weight)| f64::from(weight)).sum();
    let mut reached = 0.0;
    all.into_iter()
        .take_while(|&(_, weight)| {
            let more = filter.top_p >= 1.0 || reached < f64::from(filter.top_p) * total;
            reached += f64::from(weight);
            more || reached == f64::from(weight)
        })
        .collect()
}

#[test]
fn greedy_takes_the_first_of_the_greatest() {
    let greedy = Sampling { temperature: Some(0.0), ..Sampling::default() };
    for draw in 0..50 {
        assert_eq!(pick(&greedy, &[0.0, 3.0, 3.0, f32::NAN], draw), 1);
    }
    assert!(sampler(&greedy).pick(&mut [f32::NAN, f32::NEG_INFINITY], &History::default(), 0).is_none());
}

#[test]
fn request_comes_before_defaults() {
    let defaults = Sampling { temperature: Some(0.0), top_k: Some(5), ..Sampling::default() };
    let wanted = Sampling { temperature: Some(0.7), ..Sampling::default() };
    let sampler = Sampler::new(&wanted, &defaults);
    assert_eq!((sampler.temperature, sampler.filter.top_k), (0.7, 5));
    assert!(!sampler.looks_back());
}

#[test]
fn penalties_and_biases_bend_the_logits_as_documented() {
    let sampling = Sampling {
        repetition_penalty: Some(2.0),
        presence_penalty: Some(0.5),
        frequency_penalty: Some(0.25),
        logit_bias: [(3, -100.0), (900, 1.0)].into(),
        ..Sampling::default()
    };
    let mut history = History::default();
    history.read(&[0, 1]);
    history.wrote(1);
    history.wrote(1);
    history.wrote(2);
    let mut logits = [4.0, 4.0, -1.0, 1.0, 1.0];
    sampler(&sampling).bend(&mut logits, &history);
    assert_eq!(logits, [2.0, 2.0 - 1.0, -2.0 - 0.75, -99.0, 1.0]);
}

#[test]
fn logprobs_are_those_of_the_logits_as_they_came() {
    let sampling =
        Sampling { temperature: Some(0.0), logit_bias: [(2, 100.0)].into(), logprobs: Some(2), ..Sampling::default() };
    let raw = [1.0f32, 3.0, 2.0, -1.0];
    let picked = sampler(&sampling).pick(&mut raw.clone(), &History::default(), 0).unwrap();
    let total: f32 = raw.iter().map(|l| l.exp()).sum();
    let expected = |token: usize| raw[token] - total.ln();
    assert_eq!(picked.token, 2);
    let logprobs = picked.logprobs.unwrap();
    assert!((logprobs.chosen - expected(2)).abs() < 1e-5);
    assert_eq!(logprobs.top.iter().map(|&(token, _)| token).collect::<Vec<_>>(), [1, 2]);
    assert!(logprobs.top.iter().all(|&(token, p)| (p - expected(token as usize)).abs() < 1e-5));
}

#[test]
fn many_draws_fall_as_the_probabilities_say() {
    let logits = [0.3, 1.7, -0.4, 1.1, 0.9, -2.0, 0.0, 1.6];
    let cases = [
        Sampling::default(),
        Sampling { temperature: Some(0.6), ..Sampling::default() },
        Sampling { top_k: Some(4), ..Sampling::default() },
        Sampling { top_p: Some(0.7), temperature: Some(1.3), ..Sampling::default() },
        Sampling { min_p: Some(0.3), top_k: Some(6), top_p: Some(0.95), ..Sampling::default() },
    ];
    for sampling in cases {
        let sampler = sampler(&sampling);
        let kept = naive(&logits, 1.0 / sampler.temperature, sampler.filter);
        let total: f32 = kept.iter().map(|k| k.1).sum();
        let mut counts = [0f64; 8];
        let draws = 40_000;
        for draw in 0..draws {
            counts[pick(&sampling, &logits, random::bits(draw, 77)) as usize] += 1.0;
        }
        let mut chi = 0.0;
        for (token, count) in counts.into_iter().enumerate() {
            match kept.iter().find(|k| k.0 == token as u32) {
                Some(&(_, weight)) => {
                    let expected = f64::from(weight / total) * draws as f64;
                    chi += (count - expected).powi(2) / expected;
                }
                None => assert_eq!(count, 0.0, "token {token} was filtered: {sampling:?}"),
            }
        }
        // At most seven degrees of freedom: 30 is passed once in ten thousand, and the draws are always the same.
        assert!(chi < 30.0, "{chi} {sampling:?}");
    }
}

proptest! {
    #[test]
    fn filters_keep_exactly_what_they_say(
        logits in prop::collection::vec(-6.0f32..6.0, 1..700),
        top_k in prop_oneof![Just(0usize), 1usize..800],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        sharpness in prop_oneof![Just(1.0f32), 0.1f32..20.0],
    ) {
        let filter = Filter { top_k, top_p, min_p };
        let most = argmax(&logits).unwrap().1;
        let mut kept = filter.keep(&logits, most, sharpness).pairs();
        kept.sort_by(select::falling);
        prop_assert_eq!(kept, naive(&logits, sharpness, filter));
    }

    #[test]
    fn the_same_draw_gives_the_same_token_and_others_give_others(
        logits in prop::collection::vec(-1.0f32..1.0, 50..200),
        draw: u64,
    ) {
        let sampling = Sampling { top_p: Some(0.95), ..Sampling::default() };
        prop_assert_eq!(pick(&sampling, &logits, draw), pick(&sampling, &logits, draw));
        let all: std::collections::BTreeSet<u32> = (0..64).map(|i| pick(&sampling, &logits, draw ^ (i + 1))).collect();
        prop_assert!(all.len() > 10);
    }
}
