//! The chunk lists that every policy must give, and what holds of any stream.

use mstar_graph::{AtEnd, Chunk, ChunkCutter, ChunkPolicy};
use proptest::prelude::*;
use serde_json::Value;

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}

fn policy(value: &Value) -> ChunkPolicy {
    if let Some(items) = value["fixed"].as_u64() {
        return ChunkPolicy::Fixed(items);
    }
    if let window @ Value::Object(_) = &value["sliding_window"] {
        return ChunkPolicy::SlidingWindow { window: number(window, "window"), stride: number(window, "stride") };
    }
    let left = &value["left_context"];
    ChunkPolicy::LeftContext { chunk: number(left, "chunk"), left: number(left, "context") }
}

fn chunk(value: &Value) -> Chunk {
    let bound = |index: usize| value["items"][index].as_u64().expect("chunks list their items");
    let last = value["last"].as_bool().expect("chunks say whether they are last");
    Chunk { items: bound(0)..bound(1), context: number(value, "context"), last }
}

fn cut(policy: ChunkPolicy, items: u64, drains: bool) -> Vec<Chunk> {
    let mut cutter = ChunkCutter::new(policy, AtEnd::Last);
    let mut chunks = Vec::new();
    for _ in 0..items {
        cutter.arrived(1);
        if drains {
            chunks.extend(std::iter::from_fn(|| cutter.next()));
        }
    }
    cutter.close();
    chunks.extend(std::iter::from_fn(|| cutter.next()));
    chunks
}

#[test]
fn policies_give_the_chunks_of_every_vector() {
    let vectors: Value = serde_json::from_str(include_str!("chunk-vectors.json")).expect("the vectors are JSON");
    let cases = vectors["cases"].as_array().expect("the vectors list cases");
    assert_eq!(cases.len(), 128);
    for case in cases {
        let drains = match case["close"].as_str() {
            Some("after_drain") => true,
            Some("before_drain") => false,
            other => panic!("unknown close {other:?}"),
        };
        let expected: Vec<Chunk> = case["chunks"].as_array().expect("cases list chunks").iter().map(chunk).collect();
        let given = cut(policy(&case["policy"]), number(case, "items"), drains);
        assert_eq!(given, expected, "{} {} {}", case["policy"], case["items"], case["close"]);
    }
}

fn any_policy() -> impl Strategy<Value = ChunkPolicy> {
    prop_oneof![
        (1..9u64).prop_map(ChunkPolicy::Fixed),
        (1..9u64)
            .prop_flat_map(|window| (Just(window), 1..=window))
            .prop_map(|(window, stride)| ChunkPolicy::SlidingWindow { window, stride }),
        (1..9u64)
            .prop_flat_map(|chunk| (Just(chunk), 0..=chunk))
            .prop_map(|(chunk, left)| ChunkPolicy::LeftContext { chunk, left }),
    ]
}

/// Items arriving a few at a time, and after each arrival how many chunks the consumer asks for.
fn any_arrivals() -> impl Strategy<Value = Vec<(u64, usize)>> {
    prop::collection::vec((0..12u64, 0..4usize), 0..20)
}

/// Runs a stream to its end, checking what holds after every event.
fn run(policy: ChunkPolicy, at_end: AtEnd, arrivals: &[(u64, usize)], after_end: usize) -> Vec<Chunk> {
    let mut cutter = ChunkCutter::new(policy, at_end);
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut ask = |cutter: &mut ChunkCutter, times: usize| {
        for _ in 0..times {
            let oldest = cutter.oldest_needed();
            let peeked = cutter.peek();
            let Some(chunk) = cutter.next() else { break };
            assert_eq!(peeked.as_ref(), Some(&chunk));
            assert!(chunk.items.start >= oldest, "a dropped item is handed over");
            assert!(cutter.oldest_needed() >= oldest && chunk.len() <= policy.largest());
            chunks.push(chunk);
        }
    };
    for (items, asks) in arrivals {
        cutter.arrived(*items);
        ask(&mut cutter, *asks);
    }
    cutter.close();
    ask(&mut cutter, after_end);
    chunks
}

/// New items of all chunks are the stream, each once and in order.
fn check_fresh(chunks: &[Chunk], total: u64) {
    let mut seen = 0;
    for chunk in chunks {
        assert!(chunk.context <= chunk.len());
        assert_eq!(chunk.fresh().start, seen);
        seen = chunk.fresh().end;
    }
    assert_eq!(seen, total);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn exactly_one_chunk_is_last_and_new_items_are_the_stream(policy in any_policy(), arrivals in any_arrivals()) {
        prop_assert_eq!(policy.flaw(), None);
        let chunks = run(policy, AtEnd::Last, &arrivals, usize::MAX);
        check_fresh(&chunks, arrivals.iter().map(|(items, _)| items).sum());
        prop_assert_eq!(chunks.iter().filter(|chunk| chunk.last).count(), 1);
        prop_assert!(chunks.last().is_some_and(|chunk| chunk.last));
    }

    #[test]
    fn a_stream_that_keeps_running_ends_in_empty_chunks(policy in any_policy(), arrivals in any_arrivals()) {
        let chunks = run(policy, AtEnd::KeepRunning, &arrivals, 300);
        check_fresh(&chunks, arrivals.iter().map(|(items, _)| items).sum());
        prop_assert!(chunks.iter().all(|chunk| !chunk.last));
        prop_assert!(chunks.iter().rev().take(50).all(|chunk| chunk.is_empty() && chunk.context == 0));
    }

    #[test]
    fn only_timing_decides_whether_the_last_chunk_brings_items(policy in any_policy(), total in 0..60u64) {
        let drained = cut(policy, total, true);
        let mut waited = cut(policy, total, false);
        if waited.len() < drained.len() {
            let last = waited.last_mut().expect("every stream has a last chunk");
            last.last = false;
            waited.push(Chunk { items: total..total, context: 0, last: true });
        }
        prop_assert_eq!(drained, waited);
    }
}
