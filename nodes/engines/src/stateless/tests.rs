//! Panics, errors and state in batches of stateless and lightly stateful components.

use std::sync::Arc;

use mstar_contract::{In, ItemChunk, Sampling, Value};

use super::*;
use crate::fake::{ERROR_WORD, FakeCutter, FakeStateless, FakeVocoder, FaultPlan, PANIC_WORD, Reach};
use crate::testing::{Rank, request, row, text_row};

fn texts(progress: &[RowProgress]) -> Vec<String> {
    let text = |progress: &RowProgress| match progress {
        RowProgress::Done(_, Ok(output)) => output.outputs[0].1.as_text().unwrap().to_owned(),
        RowProgress::Done(_, Err(error)) => error.to_string(),
        _ => panic!("a stateless row is done at once"),
    };
    progress.iter().map(text).collect()
}

fn chunk_row(id: u64, port: &str, items: &[&str], start: u64, last: bool) -> Row {
    let items = items.iter().map(|&item| Value::text(item)).collect();
    let chunk = In::Chunk(ItemChunk { items, start, context: 0, last });
    row(id, port, chunk, start, &request("", Sampling::default()))
}

#[test]
fn rows_are_answered_in_order_and_a_panic_stays_with_its_row() {
    let (rank, mut engine) = (Rank::new(), StatelessEngine::new(Box::new(FakeStateless::new(FaultPlan::none()))));
    let rows = ["ab", PANIC_WORD, "ä", ERROR_WORD].iter().enumerate();
    let rows = rows.map(|(id, text)| text_row(id as u64, "in", text)).collect();
    let said = texts(&rank.run(&mut engine, "upper", rows));
    assert_eq!(said[0], "AB");
    assert!(said[1].starts_with("panicked: "), "{}", said[1]);
    assert_eq!(said[2], "Ä");
    assert!(!said[3].starts_with("panicked"), "{}", said[3]);
}

#[test]
fn a_batch_that_panics_once_is_answered_in_full() {
    let plan = FaultPlan::new(0, Reach::Op, 1, 1);
    let (rank, mut engine) = (Rank::new(), StatelessEngine::new(Box::new(FakeStateless::new(plan.clone()))));
    let rows = vec![text_row(1, "in", "a"), text_row(2, "in", "b")];
    assert_eq!(texts(&rank.run(&mut engine, "upper", rows)), ["A", "B"]);
    assert_eq!(plan.struck(), 1);
}

/// Gives one result too few.
struct Forgetful;

impl Compute for Forgetful {
    fn run(&mut self, _: &OpName, rows: &[Row], _: &ComputeCx<'_>) -> Vec<Result<mstar_contract::RowOutput, RowError>> {
        rows.iter().skip(1).map(|_| Ok(mstar_contract::RowOutput::default())).collect()
    }
}

#[test]
fn a_wrong_number_of_results_fails_the_rows_by_name() {
    let (rank, mut engine) = (Rank::new(), StatelessEngine::new(Box::new(Forgetful)));
    let said = texts(&rank.run(&mut engine, "f", vec![text_row(1, "in", "a"), text_row(2, "in", "b")]));
    assert_eq!(said, ["op f gave 1 results for 2 rows"; 2]);
}

/// Speaks texts in so many chunks and returns the samples.
fn spoken(engine: &mut StatelessEngine, rank: &Rank, id: u64, chunks: &[&[&str]]) -> Vec<f32> {
    let mut samples = Vec::new();
    let mut start = 0;
    for (i, items) in chunks.iter().enumerate() {
        let row = chunk_row(id, "items", items, start, i + 1 == chunks.len());
        start += items.len() as u64;
        let output = rank.finish(engine, "speak", row).unwrap();
        for (_, value) in output.outputs {
            samples.extend_from_slice(value.as_tensor().unwrap().f32s().unwrap());
        }
    }
    samples
}

#[test]
fn a_vocoder_depends_on_every_byte_but_not_on_chunks_company_or_faults() {
    let rank = Rank::new();
    let plan = FaultPlan::new(5, Reach::Op, 2, 100);
    let mut engine = StatelessEngine::new(Box::new(FakeVocoder::new(plan)));
    let whole = spoken(&mut engine, &rank, 1, &[&["ab", "c"]]);
    assert_eq!(whole.len(), 3 * FakeVocoder::SAMPLES_PER_BYTE + FakeVocoder::TAIL);
    assert_eq!(spoken(&mut engine, &rank, 2, &[&["a"], &["bc"], &[]]), whole);
    assert_ne!(spoken(&mut engine, &rank, 3, &[&["ac", "b"]])[8..16], whole[8..16]);
    assert_eq!(engine.usage().sequences, 3);
    (1..=3).for_each(|id| engine.retire(RequestKey { id, attempt: 0 }));
    assert_eq!(engine.usage().sequences, 0);
    assert_eq!(rank.gauge.live(), 0);
}

#[test]
fn a_vocoder_notices_items_that_were_lost_or_came_twice() {
    let rank = Rank::new();
    let mut engine = StatelessEngine::new(Box::new(FakeVocoder::new(FaultPlan::none())));
    rank.finish(&mut engine, "speak", chunk_row(1, "items", &["a"], 0, false)).unwrap();
    assert!(rank.finish(&mut engine, "speak", chunk_row(1, "items", &["a"], 0, false)).is_err());
    assert!(rank.finish(&mut engine, "speak", chunk_row(1, "items", &["c"], 2, false)).is_err());
    rank.finish(&mut engine, "speak", chunk_row(1, "items", &["b"], 1, true)).unwrap();
}

#[test]
fn state_survives_a_batch_that_another_row_broke() {
    let rank = Rank::new();
    let mut engine = StatelessEngine::new(Box::new(FakeCutter::new(FaultPlan::none())));
    let batch = vec![chunk_row(1, "text", &["one. tw"], 0, false), chunk_row(2, "text", &[PANIC_WORD], 0, false)];
    assert_eq!(texts(&rank.run(&mut engine, "cut", batch))[0], "one.");
    let rest = rank.finish(&mut engine, "cut", chunk_row(1, "text", &["o"], 1, true)).unwrap();
    assert_eq!(rest.outputs[0].1.as_text(), Some(" two"));
    engine.reset();
    assert_eq!(engine.usage().sequences, 0);
    let shared: Arc<str> = "x".into();
    assert_eq!(texts(&rank.run(&mut engine, "cut", vec![chunk_row(1, "text", &[&shared], 0, true)])), ["x"]);
}
