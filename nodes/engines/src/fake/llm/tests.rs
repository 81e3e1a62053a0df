//! The fake language model behaves like a paged one: company, chunks, losses, pages, faults.

use mstar_contract::Sampling;
use proptest::prelude::*;

use super::*;
use crate::fake::PANIC_WORD;
use crate::isolate::guard;
use crate::testing::{Generation, Rank, held, run_together, text_row};

const PROMPTS: [&str; 4] =
    ["one two three", "tell me of rivers", "a", "so many words that a chunk is not enough for them"];

fn model(pages: usize, prefill_chunk: usize) -> FakeLlm {
    let limits = FakeLlmLimits { pages, prefill_chunk, max_tokens: 24 };
    FakeLlm::new("generate", limits, FaultPlan::none())
}

fn generations() -> Vec<Generation> {
    (0..PROMPTS.len()).map(|i| Generation::new(i as u64, PROMPTS[i], Sampling::default())).collect()
}

fn alone() -> Vec<(Vec<u32>, String, Usage, Option<FinishReason>)> {
    let rank = Rank::new();
    generations().into_iter().map(|g| g.run(&rank, &mut model(64, 1000)).seen()).collect()
}

#[test]
fn text_is_whole_characters_and_joins_to_the_tokens_bytes() {
    let rank = Rank::new();
    let mut crabs = 0;
    for id in 0..200 {
        let generation =
            Generation::new(id, &format!("prompt {id}"), Sampling::default()).run(&rank, &mut model(64, 9));
        let bytes: Vec<u8> =
            generation.tokens.iter().flat_map(|&t| mstar_contract::Detokenizer::bytes(&Lexicon, t).to_vec()).collect();
        assert_eq!(generation.text, String::from_utf8_lossy(&bytes));
        crabs += generation.text.matches('🦀').count();
    }
    assert!(crabs > 10, "{crabs}");
}

#[test]
fn a_generation_ends_at_its_bound_an_end_token_or_a_stop_string() {
    let rank = Rank::new();
    let bounded = Sampling { max_tokens: Some(3), ..Sampling::default() };
    let generation = Generation::new(1, "short", bounded).run(&rank, &mut model(64, 9));
    assert_eq!((generation.tokens.len(), generation.finish), (3, Some(FinishReason::Length)));
    assert_eq!(generation.usage, Usage { prompt_tokens: 1, completion_tokens: 3 });
    let stopped = Sampling { stop: vec![" ".to_owned()], ..Sampling::default() };
    let generation = Generation::new(1, "short", stopped).run(&rank, &mut model(64, 9));
    assert_eq!(generation.finish, Some(FinishReason::Stop));
    assert!(!generation.text.contains(' '));
}

#[test]
fn a_lost_sequence_without_a_journal_is_an_error() {
    let (rank, mut model) = (Rank::new(), model(64, 9));
    let mut generation = Generation::new(1, "hello", Sampling::default());
    generation.take(rank.finish(&mut model, "prefill", generation.next().1).unwrap());
    model.reset();
    assert_eq!(model.usage().kv_pages_used, 0);
    assert!(rank.finish(&mut model, "decode", generation.next().1).is_err());
}

#[test]
fn pages_are_reserved_at_the_beginning_and_freed_at_retire() {
    let (rank, mut model) = (Rank::new(), model(5, 9));
    // 1 prompt token and up to 24 more: two pages of 16 each.
    let rows: Vec<Row> = (0..3).map(|id| text_row(id, "prompt", "hello")).collect();
    let progress = rank.run(&mut model, "prefill", rows);
    assert!(matches!(progress[..], [RowProgress::Done(..), RowProgress::Done(..), RowProgress::Waiting(_)]));
    assert_eq!(held(&model), (4, 5, 2));
    let long = "w ".repeat(100);
    let progress = rank.run(&mut model, "prefill", vec![text_row(9, "prompt", &long)]);
    assert!(matches!(progress[..], [RowProgress::Done(_, Err(RowError::TooLarge(_)))]));
    for id in 0..3 {
        model.retire(RequestKey { id, attempt: 3 });
    }
    assert_eq!(held(&model), (0, 5, 0));
}

#[test]
fn a_row_that_panics_takes_nobody_with_it() {
    let (rank, mut model) = (Rank::new(), model(64, 9));
    let rows = vec![text_row(1, "prompt", "fine"), text_row(2, "prompt", PANIC_WORD), text_row(3, "prompt", "good")];
    let progress = rank.run(&mut model, "prefill", rows);
    let failed = |p: &RowProgress| matches!(p, RowProgress::Done(_, Err(RowError::Panicked(_))));
    assert_eq!(progress.iter().map(failed).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(model.usage().sequences, 2);
}

#[test]
fn faults_within_an_op_change_nothing_and_faults_of_a_node_escape() {
    let rank = Rank::new();
    let plan = FaultPlan::new(3, Reach::Op, 2, 1000);
    let mut shaky = FakeLlm::new("generate", FakeLlmLimits { max_tokens: 24, ..Default::default() }, plan.clone());
    let seen: Vec<_> = generations().into_iter().map(|g| g.run(&rank, &mut shaky).seen()).collect();
    assert_eq!(seen, alone());
    assert!(plan.struck() > 3);
    let plan = FaultPlan::new(3, Reach::Node, 1, 1);
    let mut lost = FakeLlm::new("generate", FakeLlmLimits::default(), plan);
    assert!(guard(|| rank.run(&mut lost, "prefill", vec![text_row(1, "prompt", "x")])).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn company_chunks_and_losses_change_nothing(
        chunk in 1usize..12,
        choices in prop::collection::vec(any::<bool>(), 64),
        losses in prop::collection::vec(1usize..24, 0..4),
    ) {
        let rank = Rank::new();
        let mut model = model(9, chunk);
        let mut turn = 0;
        let mut picks = |_: usize, _: &Generation| { turn += 1; choices[turn % 64] || turn.is_multiple_of(7) };
        let together = run_together(&rank, &mut model, generations(), &mut picks, |_| false);
        let seen: Vec<_> = together.iter().map(Generation::seen).collect();
        prop_assert_eq!(&seen, &alone());
        prop_assert_eq!(model.usage().kv_pages_used, 0);
        for (mut generation, expected) in generations().into_iter().zip(seen) {
            while generation.finish.is_none() {
                if losses.contains(&generation.tokens.len()) {
                    model.reset();
                    generation.lost = true;
                }
                let (op, row) = generation.next();
                generation.take(rank.finish(&mut model, op, row).unwrap());
            }
            prop_assert_eq!(generation.seen(), expected);
            model.reset();
        }
    }
}
