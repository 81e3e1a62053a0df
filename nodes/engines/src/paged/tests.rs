//! The paged engine on a small random network: the same tokens whatever happens around them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mstar_contract::{FinishReason, In, Sampling, Usage, Value};
use proptest::prelude::*;

use super::*;
use crate::testing::{Generation, Rank, held, request, row, run_together};

mod device;
mod prefix;
mod tiny;
use tiny::{CONTEXT, END, POISON_TEXT, Probe, Tiny, ops_of_tiny};

fn limits(pages: usize, max_batch_tokens: usize, prefill_chunk: usize) -> PagedLimits {
    PagedLimits { budget: KvBudget::Pages(pages), max_batch_tokens, prefill_chunk }
}

fn engine(limits: PagedLimits, crosses: bool) -> (PagedEngine, Arc<Probe>) {
    let probe = Arc::<Probe>::default();
    let tiny = Tiny::new(Precision::F32, crosses, Arc::clone(&probe));
    let cx = Cx::with_threads(1).unwrap();
    (PagedEngine::new(Box::new(tiny), &ops_of_tiny(), limits, &cx).unwrap(), probe)
}

fn roomy() -> PagedEngine {
    engine(limits(64, 1000, 1000), false).0
}

fn greedy(max_tokens: u32) -> Sampling {
    Sampling { temperature: Some(0.0), max_tokens: Some(max_tokens), ..Sampling::default() }
}

/// Requests that differ in all that an engine must keep apart.
fn generations() -> Vec<Generation> {
    let penalised = Sampling {
        repetition_penalty: Some(1.3),
        presence_penalty: Some(0.4),
        frequency_penalty: Some(0.3),
        max_tokens: Some(20),
        ..Sampling::default()
    };
    let picky =
        Sampling { top_p: Some(0.8), top_k: Some(12), min_p: Some(0.05), temperature: Some(0.8), ..penalised.clone() };
    let stopped = Sampling { stop: vec!["e".to_owned(), "q.".to_owned()], max_tokens: Some(30), ..Sampling::default() };
    let watched = Sampling { logprobs: Some(3), ..greedy(12) };
    let cases = [
        ("a prompt of some thirty-eight letters!", greedy(18)),
        ("short", penalised),
        ("x", picky),
        ("another one, of thirty", stopped),
        ("tell me", watched),
        ("unbounded", Sampling::default()),
    ];
    let numbered = (0..).zip(cases);
    numbered.map(|(id, (prompt, sampling))| Generation::new(id, prompt, sampling)).collect()
}

fn seen(generations: &[Generation]) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    generations.iter().map(|g| (g.seen(), g.details.clone())).collect()
}

fn alone(crosses: bool) -> Vec<Generation> {
    let rank = Rank::new();
    let mut engine = engine(limits(64, 1000, 1000), crosses).0;
    generations().into_iter().map(|generation| generation.run(&rank, &mut engine)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn company_chunks_budgets_and_losses_change_nothing(
        (chunk, budget, pages) in (1usize..20, 1usize..30, 5usize..14),
        choices in prop::collection::vec(any::<bool>(), 61),
        lost_in in prop::collection::vec(0usize..80, 0..4),
        crosses: bool,
    ) {
        let rank = Rank::new();
        let (mut engine, probe) = engine(limits(pages, budget, chunk), crosses);
        let mut turn = 0;
        let picks = |_: usize, _: &Generation| { turn += 1; choices[turn % 61] || turn.is_multiple_of(7) };
        let together = run_together(&rank, &mut engine, generations(), picks, |round| lost_in.contains(&round));
        prop_assert_eq!(seen(&together), seen(&alone(crosses)));
        prop_assert_eq!(held(&engine), (0, pages, 0));
        prop_assert!(probe.largest.load(Ordering::Relaxed) <= budget);
    }

    #[test]
    fn whoever_fits_is_served_in_the_end(
        wishes in prop::collection::vec((1usize..60, 1u32..40), 1..14),
        pages in 5usize..9,
        choices in prop::collection::vec(any::<bool>(), 61),
    ) {
        let rank = Rank::new();
        let mut engine = engine(limits(pages, 24, 9), false).0;
        let generation = |(id, (letters, max_tokens)): (u64, (usize, u32))| {
            Generation::new(id, &"abcdefgh".repeat(8)[..letters], greedy(max_tokens))
        };
        let generations = (0..).zip(wishes).map(generation).collect();
        let mut turn = 0;
        let picks = |_: usize, _: &Generation| { turn += 1; choices[turn % 61] || turn.is_multiple_of(5) };
        let served = run_together(&rank, &mut engine, generations, picks, |_| false);
        prop_assert!(served.iter().all(|g| g.finish.is_some()));
        prop_assert_eq!(engine.usage().kv_pages_used, 0);
    }
}

#[test]
fn bf16_pages_are_as_steady_as_f32_ones() {
    let rank = Rank::new();
    let make = |limits| {
        let tiny = Tiny::new(Precision::Bf16, false, Arc::default());
        PagedEngine::new(Box::new(tiny), &ops_of_tiny(), limits, &rank.cx).unwrap()
    };
    let mut large = make(limits(64, 1000, 1000));
    let alone: Vec<_> = generations().into_iter().map(|g| g.run(&rank, &mut large)).collect();
    let together = run_together(&rank, &mut make(limits(9, 11, 5)), generations(), |_, _| true, |round| round == 9);
    assert_eq!(seen(&together), seen(&alone));
}

#[test]
fn a_generation_ends_at_its_bound_the_context_an_end_token_or_a_stop_string() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let run =
        |engine: &mut PagedEngine, prompt: &str, sampling| Generation::new(0, prompt, sampling).run(&rank, engine);
    let never_ends = |sampling: Sampling| Sampling { logit_bias: [(END, -1e9)].into(), ..sampling };
    let bounded = run(&mut engine, "hello", never_ends(greedy(7)));
    assert_eq!((bounded.tokens.len(), bounded.finish), (7, Some(FinishReason::Length)));
    assert_eq!(bounded.usage, Usage { prompt_tokens: 5, completion_tokens: 7 });
    let full = run(&mut engine, &"x".repeat(CONTEXT - 4), never_ends(greedy(1000)));
    // Four more fit; the token sampled after the last of them has no place and needs none.
    assert_eq!((full.tokens.len(), full.finish), (5, Some(FinishReason::Length)));
    let ended = run(&mut engine, "hello", Sampling { logit_bias: [(END, 1e9)].into(), ..greedy(9) });
    assert_eq!((ended.tokens, ended.text, ended.finish), (vec![END], String::new(), Some(FinishReason::Stop)));
    let pressed = |stop: &str| Sampling { stop: vec![stop.to_owned()], logit_bias: [(5, 1e9)].into(), ..greedy(9) };
    let stopped = run(&mut engine, "hello", pressed("eee"));
    assert_eq!((stopped.tokens.len(), stopped.text.as_str(), stopped.finish), (3, "", Some(FinishReason::Stop)));
    let held = run(&mut engine, "hello", pressed("eeex"));
    assert_eq!((held.text.as_str(), held.finish), ("eeeeeeeee", Some(FinishReason::Length)));
}

#[test]
fn sampling_meant_for_another_decoder_is_not_followed() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let mut request = request("hello", Sampling { temperature: Some(1.0), ..greedy(1) });
    Arc::make_mut(&mut request).options.insert("deaf".to_owned(), true.into());
    let prompt = In::One(Value::text("hello"));
    let deaf = Generation::with_input(1, prompt, request).run(&rank, &mut engine);
    let free = Generation::new(1, "hello", Sampling::default()).run(&rank, &mut engine);
    assert_eq!(deaf.seen(), free.seen());
    assert!(deaf.tokens.len() > 1);
}

#[test]
fn rows_wait_for_pages_in_turn_and_what_never_fits_is_refused() {
    let (rank, mut engine) = (Rank::new(), engine(limits(4, 100, 100), false).0);
    let prefill = |id: u64, letters: usize, max_tokens| {
        let prompt = "x".repeat(letters);
        row(id, "prompt", In::One(Value::text(prompt.as_str())), 1, &request(&prompt, greedy(max_tokens)))
    };
    for (letters, max_tokens) in [(60, 12), (CONTEXT + 1, 1)] {
        let refused = rank.run(&mut engine, "prefill", vec![prefill(9, letters, max_tokens)]);
        assert!(matches!(refused[..], [RowProgress::Done(_, Err(RowError::TooLarge(_)))]), "{refused:?}");
    }
    // Two pages, then three, then one: the third would fit, but does not overtake the second.
    let progress = rank.run(&mut engine, "prefill", vec![prefill(1, 20, 12), prefill(2, 30, 18), prefill(3, 4, 12)]);
    assert!(matches!(progress[..], [RowProgress::Done(..), RowProgress::Waiting(_), RowProgress::Waiting(_)]));
    let again = rank.run(&mut engine, "prefill", vec![prefill(3, 4, 12)]);
    assert!(matches!(again[..], [RowProgress::Waiting(_)]), "not before the second");
    assert_eq!(held(&engine), (2, 4, 1));
    engine.retire(RequestKey { id: 1, attempt: 0 });
    let progress = rank.run(&mut engine, "prefill", vec![prefill(3, 4, 12), prefill(2, 30, 18)]);
    assert!(matches!(progress[..], [RowProgress::Waiting(_), RowProgress::Done(_, Ok(_))]));
}

#[test]
fn a_row_that_panics_is_alone_with_it() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let first = |id, prompt: &str| Generation::new(id, prompt, greedy(9)).next().1;
    let expected = rank.finish(&mut engine, "prefill", first(1, "fine")).unwrap().sampled;
    engine.retire(RequestKey { id: 1, attempt: 0 });
    let rows = vec![first(2, "fine"), first(3, &format!("a{POISON_TEXT}")), first(4, "good")];
    let progress = rank.run(&mut engine, "prefill", rows);
    let [RowProgress::Done(_, Ok(fine)), RowProgress::Done(_, Err(poisoned)), RowProgress::Done(_, Ok(_))] =
        &progress[..]
    else {
        panic!("{progress:?}")
    };
    assert_eq!(fine.sampled, expected);
    assert_eq!(poisoned.to_string(), "panicked: poison");
    assert_eq!(engine.usage().sequences, 2);
}

#[test]
fn a_pass_that_panics_after_it_wrote_leaves_no_trace() {
    let rank = Rank::new();
    let (mut engine, probe) = engine(limits(30, 1000, 7), false);
    let stir = |round: usize| {
        // The batch falls, then its first row once.
        probe.hiccups.store(if round.is_multiple_of(3) { 2 } else { 0 }, Ordering::Relaxed);
        false
    };
    let together = run_together(&rank, &mut engine, generations(), |_, _| true, stir);
    assert_eq!(seen(&together), seen(&alone(false)));
}

#[test]
fn a_context_is_prepared_once_per_sequence_and_matters() {
    let rank = Rank::new();
    let (mut engine, probe) = engine(limits(64, 1000, 3), true);
    let crossed = Generation::new(1, "some prompt", greedy(8)).run(&rank, &mut engine);
    assert_eq!(probe.crossed.load(Ordering::Relaxed), 1);
    let plain = Generation::new(1, "some prompt", greedy(8)).run(&rank, &mut roomy());
    assert_ne!(crossed.tokens, plain.tokens);
}

#[test]
fn log_probabilities_come_with_each_token() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let sampling = Sampling { logprobs: Some(2), ..greedy(3) };
    let generation = Generation::new(1, "hello", sampling).run(&rank, &mut engine);
    assert_eq!(generation.details.len(), generation.tokens.len());
    for (detail, &token) in generation.details.iter().zip(&generation.tokens) {
        let entry = &detail["logprobs"][0];
        assert_eq!(entry["id"], token);
        assert_eq!(entry["top_logprobs"][0]["id"], token, "greedy takes the likeliest");
        assert_eq!(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0 && entry["token"].is_string() && entry["bytes"].is_array());
    }
}

#[test]
fn labels_and_attempts_are_sequences_of_their_own() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let with = |attempt: u32, label: u8| {
        let mut row = Generation::new(5, "hi", greedy(4)).next().1;
        row.key.attempt = attempt;
        Arc::make_mut(&mut row.params).label = label;
        row.work.0 += u64::from(attempt) * 10 + u64::from(label);
        row
    };
    let progress = rank.run(&mut engine, "prefill", vec![with(0, 0), with(0, 1), with(1, 0), with(2, 7)]);
    assert!(progress.iter().all(|p| matches!(p, RowProgress::Done(_, Ok(_)))));
    assert_eq!(engine.usage().sequences, 4);
    engine.retire(RequestKey { id: 5, attempt: 1 });
    engine.retire(RequestKey { id: 5, attempt: 1 });
    assert_eq!(engine.usage().sequences, 1);
    engine.reset();
    assert_eq!((engine.usage().sequences, engine.usage().kv_pages_used), (0, 0));
}

#[test]
fn steps_that_make_no_sense_fail_by_name() {
    let (rank, mut engine) = (Rank::new(), roomy());
    let said = |engine: &mut PagedEngine, op: &str, row: Row| rank.finish(engine, op, row).unwrap_err().to_string();
    let token = |draw| row(1, "token", In::One(Value::token(3)), draw, &request("", greedy(2)));
    assert!(said(&mut engine, "decode", token(1)).contains("lost"));
    assert!(said(&mut engine, "encode", token(1)).contains("no op encode"));
    assert!(said(&mut engine, "prefill", Generation::new(1, "", greedy(2)).next().1).contains("no tokens"));
    let same = |draw| {
        let mut row = Generation::new(1, "hi", greedy(2)).next().1;
        row.work.0 = draw;
        row
    };
    let progress = rank.run(&mut engine, "prefill", vec![same(1), same(2)]);
    assert!(matches!(progress[..], [RowProgress::Done(_, Err(_)), RowProgress::Done(_, Ok(_))]));
}

#[test]
fn a_budget_in_bytes_buys_whole_pages() {
    let geometry = Tiny::new(Precision::F32, false, Arc::default()).geometry();
    for (head_dim, precision) in [(8, Precision::F32), (16, Precision::Bf16), (80, Precision::F32)] {
        let geometry = KvGeometry { head_dim, precision, ..geometry };
        let size = KvSize { layers: geometry.layers, pages: 3, heads: geometry.kv_heads, head_dim };
        let bytes = KvPages::new(size, dtype(precision)).unwrap().bytes() as u64;
        assert_eq!(KvBudget::Bytes(bytes).pages(&geometry), 3);
        assert_eq!(KvBudget::Bytes(bytes - 1).pages(&geometry), 2);
        assert_eq!(KvBudget::Bytes(bytes / 3 - 1).pages(&geometry), 0);
        assert_eq!(page_bytes(&geometry), bytes / 3);
    }
}

#[test]
fn replies_go_on_beside_a_long_prompt_and_hardly_slow_down() {
    let (rank, (mut engine, probe)) = (Rank::new(), engine(limits(64, 1000, 1000), false));
    let long = "the quick brown fox jumps over the lazy dog, then sleeps";
    let never_ends = Sampling { logit_bias: [(END, -1e9)].into(), ..greedy(60) };
    let mut replies: Vec<_> = (0..4).map(|id| Generation::new(id, "hi", never_ends.clone())).collect();
    let mut prompt = Some(Generation::new(9, long, greedy(1)).next().1);
    let (mut steady, mut beside) = (Vec::new(), Vec::new());
    for pass in 0..50 {
        let mut rows: Vec<Row> = if pass < 10 { Vec::new() } else { prompt.take().into_iter().collect() };
        let mixed = !rows.is_empty();
        rows.extend(replies.iter().map(|reply| reply.next().1));
        let progress = rank.run_mixed(&mut engine, rows);
        // A pass waits for the weights, then for arithmetic.
        let took = Duration::from_micros(1000.max(100 * probe.latest.load(Ordering::Relaxed) as u64));
        engine.timed(took);
        if pass > 0 {
            if mixed {
                beside.push(took)
            } else {
                steady.push(took)
            };
        }
        for progress in progress {
            match progress {
                RowProgress::More(row) => prompt = Some(row),
                RowProgress::Done(work, Ok(output)) => {
                    if let Some(reply) = replies.iter_mut().find(|reply| reply.next().1.work == work) {
                        reply.take(output);
                    }
                }
                progress => panic!("{progress:?}"),
            }
        }
    }
    assert!(prompt.is_none() && beside.len() > 3 && beside.len() < 12, "{} passes", beside.len());
    assert!(replies.iter().all(|reply| reply.tokens.len() == 50), "nobody missed a pass");
    assert!(beside.iter().max().unwrap() < &(2 * steady[0]), "{beside:?} {steady:?}");
    assert_eq!(engine.usage().sequences, 5);
}

#[test]
fn a_prompt_alone_is_read_in_whole_pieces() {
    let (rank, (mut engine, probe)) = (Rank::new(), engine(limits(64, 1000, 30), false));
    let rows = vec![Generation::new(1, &"x".repeat(50), greedy(1)).next().1];
    let progress = rank.run_mixed(&mut engine, rows);
    assert!(matches!(progress[..], [RowProgress::More(_)]));
    assert_eq!(probe.latest.load(Ordering::Relaxed), 30);
}
