//! Who restarts, when, and with whom.

use std::time::Duration;

use mstar_supervisor::{ChildSpec, ChildState, Incarnation, Intensity, RestartPolicy, Strategy, SupervisorSpec};
use tokio::time::Instant;

use crate::stage::{Order, Stage, child, spec};

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_only_the_child_that_died() {
    let stage = Stage::open(spec(vec![child("a"), child("b")])).await;
    assert_eq!(stage.log(), ["a#1 started", "b#1 started"]);
    let b = stage.cell("b");
    let snapshot = stage.crash("a", Order::Panic("a bad day")).await;
    assert_eq!(stage.log(), ["a#1 failed: a bad day", "a restarts after 100ms", "a#2 started"]);
    assert_eq!(stage.cell("b"), b, "the sibling lives on");
    let a = snapshot.child("a").unwrap();
    assert_eq!((a.state, a.incarnation, a.restarts), (ChildState::Running, Incarnation(2), 1));
    assert_eq!(a.last_reason.as_deref(), Some("failed: a bad day"));
    assert_eq!(snapshot.child("b").unwrap().restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_stops_the_younger_in_reverse_and_starts_them_in_order() {
    let children = ["a", "b", "c", "d"].map(child).into_iter().collect();
    let stage = Stage::open(SupervisorSpec { strategy: Strategy::RestForOne, ..spec(children) }).await;
    assert_eq!(stage.log(), ["a#1 started", "b#1 started", "c#1 started", "d#1 started"]);
    stage.crash("b", Order::Fail("no luck")).await;
    let expected = [
        "b#1 failed: no luck",
        "b restarts after 100ms",
        "d#1 stopped",
        "c#1 stopped",
        "b#2 started",
        "c#2 started",
        "d#2 started",
    ];
    assert_eq!(stage.log(), expected);
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_kills_a_younger_child_that_will_not_stop() {
    let mut stubborn = child("b");
    stubborn.shutdown_within = Duration::from_secs(2);
    let stage =
        Stage::open(SupervisorSpec { strategy: Strategy::RestForOne, ..spec(vec![child("a"), stubborn]) }).await;
    stage.tell("b", Order::Hang);
    tokio::task::yield_now().await;
    let start = Instant::now();
    stage.crash("a", Order::Panic("oops")).await;
    assert!((2000..2010).contains(&start.elapsed().as_millis()), "its deadline, no longer");
    assert_eq!(
        stage.log()[2..],
        ["a#1 failed: oops", "a restarts after 100ms", "b#1 stopped", "a#2 started", "b#2 started"]
    );
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_marks_down_what_depends_on_a_child_that_is_down() {
    let mut weak = child("b");
    weak.intensity = Intensity { max_restarts: 0, within: Duration::from_secs(60) };
    let stage =
        Stage::open(SupervisorSpec { strategy: Strategy::RestForOne, ..spec(vec![child("a"), weak, child("c")]) })
            .await;
    let snapshot = stage.crash("b", Order::Panic("oops")).await;
    let states: Vec<ChildState> = snapshot.children.iter().map(|child| child.state).collect();
    assert_eq!(states, [ChildState::Running, ChildState::Down, ChildState::Down]);
    assert_eq!(stage.log().last().unwrap(), "c down: b is down");
    assert!(stage.supervisor.revive("b", Duration::from_secs(1)).await.unwrap());
    assert!(stage.rest().await.healthy());
    assert_eq!(stage.log(), ["b#2 started", "c#2 started"]);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_to_the_cap_and_start_over_after_a_steady_run() {
    let mut a = child("a");
    a.intensity = Intensity { max_restarts: 100, within: Duration::from_secs(3600) };
    let stage = Stage::open(spec(vec![a])).await;
    for _ in 0..6 {
        stage.crash("a", Order::Panic("again")).await;
    }
    tokio::time::advance(Duration::from_secs(31)).await;
    stage.crash("a", Order::Panic("again")).await;
    let pauses: Vec<String> =
        stage.log().iter().filter_map(|line| line.strip_prefix("a restarts after ").map(str::to_owned)).collect();
    assert_eq!(pauses, ["100ms", "200ms", "400ms", "800ms", "1s", "1s", "100ms"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_too_often_is_marked_down_and_stays_so() {
    let mut a = child("a");
    a.intensity = Intensity { max_restarts: 2, within: Duration::from_secs(60) };
    let stage = Stage::open(spec(vec![a, child("b")])).await;
    for _ in 0..3 {
        stage.crash("a", Order::Panic("broken")).await;
    }
    assert_eq!(stage.log().last().unwrap(), "a down: exceeded 2 restarts within 60s; last: failed: broken");
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(stage.state("a").await, ChildState::Down);
    assert_eq!(stage.state("b").await, ChildState::Running, "the rest serves on");
    assert!(!stage.supervisor.revive("b", Duration::from_secs(1)).await.unwrap(), "b is not down");
}

#[tokio::test(start_paused = true)]
async fn restarts_that_lie_apart_never_exhaust() {
    let mut a = child("a");
    a.intensity = Intensity { max_restarts: 1, within: Duration::from_secs(10) };
    let stage = Stage::open(spec(vec![a])).await;
    for _ in 0..5 {
        stage.crash("a", Order::Panic("now and then")).await;
        tokio::time::advance(Duration::from_secs(11)).await;
    }
    assert_eq!(stage.state("a").await, ChildState::Running);
}

#[tokio::test(start_paused = true)]
async fn policies_decide_which_ends_are_followed_by_a_start() {
    async fn check(policy: RestartPolicy, order: Order, expected: (ChildState, &str)) {
        let stage = Stage::open(spec(vec![ChildSpec { restart: policy, ..child("a") }])).await;
        let snapshot = stage.crash("a", order).await;
        let a = snapshot.child("a").unwrap();
        assert_eq!((a.state, a.last_reason.as_deref().unwrap()), expected, "{policy:?}");
    }
    check(RestartPolicy::Always, Order::Finish, (ChildState::Running, "finished: done")).await;
    check(RestartPolicy::OnFailure, Order::Finish, (ChildState::Finished, "finished: done")).await;
    check(RestartPolicy::OnFailure, Order::Panic("p"), (ChildState::Running, "failed: p")).await;
    check(RestartPolicy::Never, Order::Panic("p"), (ChildState::Finished, "failed: p")).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_killed_by_others_is_restarted() {
    let stage = Stage::open(spec(vec![child("a")])).await;
    let cell = stage.cell("a");
    cell.kill();
    cell.wait(None).await.unwrap();
    stage.rest().await;
    assert_eq!(stage.log()[1..], ["a#1 killed", "a restarts after 100ms", "a#2 started"]);
}
