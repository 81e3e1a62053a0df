//! Rows come and go; each test says what runs next.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use mstar_contract::{KvUse, Request, Sampling, StepParams, Task, WorkId};
use smallvec::SmallVec;

use super::*;

/// Ops that share passes, and one that does not.
const PREFILL: OpIx = OpIx(0);
const DECODE: OpIx = OpIx(1);
const ENCODE: OpIx = OpIx(2);

fn key(id: u64) -> RequestKey {
    RequestKey { id, attempt: 0 }
}

fn ops() -> [OpDecl; 3] {
    [
        OpDecl::new("prefill", &[], &[]).kv(KvUse::Begin),
        OpDecl::new("decode", &[], &[]).kv(KvUse::Extend),
        OpDecl::new("encode", &[], &[]),
    ]
}

fn row(id: u64, op: OpIx) -> Row {
    let request = Request {
        id: "r".into(),
        tenant: Default::default(),
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
    let op = ops()[usize::from(op.0)].name.clone();
    Row { work: WorkId(id), key: key(id), op, inputs: SmallVec::new(), params, draw: 0, rebuild: None }
}

/// A batcher, and the time by its own clock: each row comes a little after the one before.
struct Table {
    batcher: Batcher,
    now: Instant,
}

impl Table {
    fn of(max_rows: usize) -> Self {
        let batcher = Batcher::new(&ops(), BatchLimits { max_rows, max_tokens: 64, wait_us: 100 });
        Self { batcher, now: Instant::now() }
    }

    fn ticket(&mut self, op: OpIx) -> Ticket {
        self.now += Duration::from_micros(1);
        Ticket { op, came: self.now, due: None }
    }

    fn push(&mut self, op: OpIx, id: u64) -> Ticket {
        let ticket = self.ticket(op);
        self.batcher.push(ticket, &ops()[usize::from(op.0)], row(id, op));
        ticket
    }

    fn more(&mut self, ticket: Ticket, id: u64) {
        self.batcher.push_more(ticket, row(id, ticket.op));
    }

    fn park(&mut self, ticket: Ticket, id: u64) {
        self.batcher.park(ticket, row(id, ticket.op));
    }

    fn finished(&mut self, back: &[u64]) {
        self.finished_after(Duration::ZERO, back);
    }

    fn finished_after(&mut self, ran: Duration, back: &[u64]) {
        self.now += Duration::from_micros(1);
        self.batcher.finished(back.iter().map(|&id| key(id)), ran, self.now);
    }

    fn decide(&mut self) -> String {
        match self.batcher.decide() {
            Decision::Run(rows, _) => {
                let named = |row: &Row| format!("{}{}", &row.op.as_str()[..1], row.key.id);
                rows.iter().map(named).collect::<Vec<_>>().join(" ")
            }
            Decision::Wait => "wait".to_owned(),
            Decision::Idle => "idle".to_owned(),
        }
    }

    #[track_caller]
    fn decides(&mut self, expected: &str) {
        assert_eq!(self.decide(), expected);
    }
}

#[test]
fn rows_expected_back_are_waited_for() {
    let mut table = Table::of(4);
    table.push(DECODE, 1);
    table.push(DECODE, 2);
    table.decides("d1 d2");
    table.decides("idle");
    table.finished(&[1, 2]);
    table.push(DECODE, 1);
    table.decides("wait");
    table.push(DECODE, 2);
    table.decides("d1 d2");
}

#[test]
fn waiting_ends_with_time_or_with_the_request() {
    let mut table = Table::of(4);
    table.push(DECODE, 1);
    table.push(DECODE, 2);
    table.decide();
    table.finished(&[1, 2]);
    table.push(DECODE, 1);
    table.batcher.ripen(table.now + Duration::from_micros(50));
    table.decides("wait");
    table.batcher.ripen(table.now + Duration::from_micros(100));
    table.decides("d1");
    table.finished(&[1]);
    table.push(DECODE, 3);
    table.decides("wait");
    table.batcher.retire(key(1));
    table.decides("d3");
}

#[test]
fn after_a_long_batch_rows_are_waited_for_longer_so_that_halves_become_one_again() {
    let mut table = Table::of(4);
    (1..=2).for_each(|id| _ = table.push(DECODE, id));
    table.decides("d1 d2");
    (3..=4).for_each(|id| _ = table.push(DECODE, id));
    table.finished_after(Duration::from_millis(16), &[1, 2]);
    table.decides("wait");
    table.batcher.ripen(table.now + Duration::from_micros(900));
    table.decides("wait");
    (1..=2).for_each(|id| _ = table.push(DECODE, id));
    table.decides("d3 d4 d1 d2");
    table.push(DECODE, 5);
    table.finished_after(Duration::from_secs(1), &[1, 2, 3, 4]);
    table.batcher.ripen(table.now + Duration::from_micros(1900));
    table.decides("wait");
    table.batcher.ripen(table.now + Duration::from_micros(2000));
    table.decides("d5");
}

#[test]
fn ops_that_share_passes_share_batches_and_steps_come_first() {
    let mut table = Table::of(4);
    let long = table.push(PREFILL, 9);
    table.decides("p9");
    table.push(DECODE, 1);
    table.finished(&[]);
    table.more(long, 9);
    table.push(DECODE, 2);
    table.decides("d1 d2 p9");
}

#[test]
fn a_prompt_always_finds_a_place_and_no_more_than_one_is_kept() {
    let mut table = Table::of(3);
    (1..=4).for_each(|id| _ = table.push(DECODE, id));
    let (eight, nine) = (table.push(PREFILL, 8), table.push(PREFILL, 9));
    table.decides("d1 d2 p8");
    table.finished(&[]);
    table.more(eight, 8);
    table.decides("d3 d4 p8");
    table.finished(&[]);
    table.more(eight, 8);
    table.decides("p8 p9");
    table.finished(&[]);
    table.more(nine, 9);
    table.more(eight, 8);
    table.decides("p8 p9");
}

#[test]
fn with_room_for_one_row_steps_and_prompts_take_turns() {
    let mut table = Table::of(1);
    let long = table.push(PREFILL, 9);
    table.push(DECODE, 1);
    table.decides("d1");
    table.push(DECODE, 1);
    table.finished(&[]);
    table.decides("p9");
    table.finished(&[]);
    table.more(long, 9);
    table.decides("d1");
}

#[test]
fn ops_that_share_nothing_go_by_age() {
    let mut table = Table::of(4);
    table.push(DECODE, 1);
    table.decides("d1");
    table.push(ENCODE, 2);
    table.finished(&[1]);
    table.decides("e2");
    table.push(DECODE, 1);
    table.push(ENCODE, 3);
    table.finished(&[]);
    table.decides("d1");
    table.finished(&[]);
    table.decides("e3");
}

#[test]
fn rows_without_room_keep_their_turn_and_stall_nobody_who_has_some() {
    let mut table = Table::of(4);
    let (one, two) = (table.push(PREFILL, 1), table.push(PREFILL, 2));
    table.decides("p1 p2");
    table.finished(&[]);
    table.more(one, 1);
    table.park(two, 2);
    table.push(PREFILL, 3);
    table.decides("p1");
    table.finished(&[]);
    table.push(DECODE, 1);
    table.decides("d1");
    table.finished(&[]);
    table.decides("idle");
    table.batcher.room_made();
    table.decides("p2 p3");
}

#[test]
fn a_batch_has_at_most_its_rows_and_the_retired_are_gone() {
    let mut table = Table::of(4);
    (0..6).for_each(|id| _ = table.push(DECODE, id));
    table.batcher.retire(key(1));
    table.decides("d0 d2 d3 d4");
    table.finished(&[]);
    table.decides("d5");
    assert_eq!(table.batcher.queued(), 0);
}

#[test]
fn a_loop_that_never_comes_back_in_time_is_not_waited_for_each_time() {
    let mut table = Table::of(4);
    let mut waits = 0;
    for _ in 0..40 {
        table.push(DECODE, 2);
        if table.decide() == "wait" {
            waits += 1;
            table.batcher.ripen(table.now + Duration::from_millis(1));
            table.decides("d2");
        }
        table.finished(&[1]);
    }
    assert!((4..8).contains(&waits), "{waits}");
}

#[test]
fn a_row_that_comes_while_its_loop_computes_joins_it() {
    let mut table = Table::of(4);
    table.push(DECODE, 1);
    table.decide();
    table.push(DECODE, 2);
    table.finished(&[1]);
    table.decides("wait");
    table.push(DECODE, 1);
    table.decides("d2 d1");
}

#[test]
fn room_that_is_made_while_a_batch_runs_is_not_missed() {
    let mut table = Table::of(4);
    let one = table.push(PREFILL, 1);
    table.decides("p1");
    table.batcher.room_made();
    table.finished(&[]);
    table.park(one, 1);
    table.decides("p1");
    table.finished(&[]);
    table.park(one, 1);
    table.decides("idle");
}

#[test]
fn rows_whose_listener_runs_dry_go_first_and_their_batch_says_so() {
    let mut table = Table::of(2);
    let later = |table: &Table, ms: u64| Some(table.now + Duration::from_millis(ms));
    (1..=2).for_each(|id| _ = table.push(DECODE, id));
    for (id, left) in [(3, 5000), (4, 90), (5, 40)] {
        let ticket = Ticket { due: later(&table, left), ..table.ticket(DECODE) };
        table.batcher.push(ticket, &ops()[1], row(id, DECODE));
    }
    let Decision::Run(rows, due) = table.batcher.decide() else { panic!("rows are here") };
    assert_eq!(rows.iter().map(|row| row.key.id).collect::<Vec<_>>(), [5, 4]);
    assert!(due.is_some_and(|due| due < table.now + Duration::from_millis(41)));
    table.finished(&[]);
    table.decides("d1 d2");
    table.finished(&[]);
    table.decides("d3");
}
