//! Rows come and go; each test says what runs next.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use mstar_contract::{Request, Sampling, StepParams, Task, WorkId};
use smallvec::SmallVec;

use super::*;

const PREFILL: OpIx = OpIx(0);
const DECODE: OpIx = OpIx(1);

fn key(id: u64) -> RequestKey {
    RequestKey { id, attempt: 0 }
}

fn row(id: u64) -> Row {
    let request = Request {
        id: "r".into(),
        model: "m".into(),
        task: Task::default(),
        messages: Vec::new(),
        media: Vec::new(),
        outputs: BTreeSet::new(),
        sampling: Sampling::default(),
        seed: 0,
        options: BTreeMap::new(),
    };
    let params = Arc::new(StepParams { request: Arc::new(request), label: 0 });
    Row { work: WorkId(id), key: key(id), inputs: SmallVec::new(), params, draw: 0, rebuild: None }
}

fn batcher() -> Batcher {
    let ops = [OpDecl::new("prefill", &[], &[]), OpDecl::new("decode", &[], &[])];
    Batcher::new(&ops, BatchLimits { max_rows: 4, max_tokens: 64, wait_us: 100 })
}

fn decide(batcher: &mut Batcher) -> String {
    match batcher.decide() {
        Decision::Run(op, rows) => format!("{}:{:?}", op.0, rows.iter().map(|row| row.key.id).collect::<Vec<_>>()),
        Decision::Wait => "wait".to_owned(),
        Decision::Idle => "idle".to_owned(),
    }
}

#[test]
fn rows_expected_back_are_waited_for() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(DECODE, row(1));
    batcher.push(DECODE, row(2));
    assert_eq!(decide(&mut batcher), "1:[1, 2]");
    assert_eq!(decide(&mut batcher), "idle", "one batch at a time");
    batcher.finished([key(1), key(2)].into_iter(), now);
    batcher.push(DECODE, row(1));
    assert_eq!(decide(&mut batcher), "wait");
    batcher.push(DECODE, row(2));
    assert_eq!(decide(&mut batcher), "1:[1, 2]");
}

#[test]
fn waiting_ends_with_time_or_with_the_request() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(DECODE, row(1));
    batcher.push(DECODE, row(2));
    decide(&mut batcher);
    batcher.finished([key(1), key(2)].into_iter(), now);
    batcher.push(DECODE, row(1));
    batcher.ripen(now + Duration::from_micros(50));
    assert_eq!(decide(&mut batcher), "wait");
    batcher.ripen(now + Duration::from_micros(100));
    assert_eq!(decide(&mut batcher), "1:[1]");
    batcher.finished([key(1)].into_iter(), now);
    batcher.push(DECODE, row(3));
    assert_eq!(decide(&mut batcher), "wait");
    batcher.retire(key(1));
    assert_eq!(decide(&mut batcher), "1:[3]");
}

#[test]
fn rows_that_waited_for_the_batch_before_do_not_wait_again_and_ops_take_turns() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(DECODE, row(1));
    assert_eq!(decide(&mut batcher), "1:[1]");
    batcher.push(PREFILL, row(2));
    batcher.finished([key(1)].into_iter(), now);
    assert_eq!(decide(&mut batcher), "0:[2]");
    batcher.push(DECODE, row(1));
    batcher.finished(std::iter::empty(), now);
    batcher.push_front(PREFILL, vec![row(2)]);
    assert_eq!(decide(&mut batcher), "1:[1]", "a long prompt does not stall the others");
    batcher.finished(std::iter::empty(), now);
    assert_eq!(decide(&mut batcher), "0:[2]");
}

#[test]
fn rows_without_room_keep_their_turn_and_do_not_stall_other_ops() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(PREFILL, row(1));
    batcher.push(PREFILL, row(2));
    assert_eq!(decide(&mut batcher), "0:[1, 2]");
    batcher.finished(std::iter::empty(), now);
    batcher.park(PREFILL, vec![row(2)]);
    batcher.push(PREFILL, row(3));
    assert_eq!(decide(&mut batcher), "idle");
    batcher.push(DECODE, row(1));
    assert_eq!(decide(&mut batcher), "1:[1]");
    batcher.finished(std::iter::empty(), now);
    batcher.room_made();
    assert_eq!(decide(&mut batcher), "0:[2, 3]");
}

#[test]
fn a_batch_has_at_most_its_rows_and_the_retired_are_gone() {
    let mut batcher = batcher();
    (0..6).for_each(|id| batcher.push(DECODE, row(id)));
    batcher.retire(key(1));
    assert_eq!(decide(&mut batcher), "1:[0, 2, 3, 4]");
    batcher.finished(std::iter::empty(), Instant::now());
    assert_eq!(decide(&mut batcher), "1:[5]");
    assert_eq!(batcher.queued(), 0);
}

#[test]
fn a_loop_that_never_comes_back_in_time_is_not_waited_for_each_time() {
    let (mut batcher, now) = (batcher(), Instant::now());
    let late = now + Duration::from_millis(1);
    let mut waits = 0;
    for _ in 0..40 {
        batcher.push(DECODE, row(2));
        if decide(&mut batcher) == "wait" {
            waits += 1;
            batcher.ripen(late);
            assert_eq!(decide(&mut batcher), "1:[2]");
        }
        batcher.finished([key(1)].into_iter(), now);
    }
    assert!((4..8).contains(&waits), "{waits}");
}

#[test]
fn a_row_that_comes_while_its_loop_computes_joins_it() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(DECODE, row(1));
    decide(&mut batcher);
    batcher.push(DECODE, row(2));
    batcher.finished([key(1)].into_iter(), now);
    assert_eq!(decide(&mut batcher), "wait");
    batcher.push(DECODE, row(1));
    assert_eq!(decide(&mut batcher), "1:[2, 1]");
}

#[test]
fn room_that_is_made_while_a_batch_runs_is_not_missed() {
    let (mut batcher, now) = (batcher(), Instant::now());
    batcher.push(PREFILL, row(1));
    assert_eq!(decide(&mut batcher), "0:[1]");
    batcher.room_made();
    batcher.finished(std::iter::empty(), now);
    batcher.park(PREFILL, vec![row(1)]);
    assert_eq!(decide(&mut batcher), "0:[1]");
    batcher.finished(std::iter::empty(), now);
    batcher.park(PREFILL, vec![row(1)]);
    assert_eq!(decide(&mut batcher), "idle");
}
