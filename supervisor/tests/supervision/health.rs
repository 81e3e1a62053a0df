//! Children that stop making progress.

use std::time::Duration;

use mstar_supervisor::{ChildSpec, Health, OnStuck, Progress};

use crate::stage::{Order, Stage, child, spec};

fn watched(on_stuck: OnStuck) -> (ChildSpec, std::sync::Arc<Progress>) {
    let progress = Progress::new();
    let health = Health { progress: progress.clone(), stuck_after: Duration::from_secs(5), on_stuck };
    (ChildSpec { health: Some(health), ..child("llm") }, progress)
}

#[tokio::test(start_paused = true)]
async fn a_stuck_child_is_reported_by_name_and_left_alone() {
    let (llm, progress) = watched(OnStuck::Report);
    let stage = Stage::open(spec(vec![llm])).await;
    stage.log();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(stage.log().is_empty(), "idle is not stuck");
    progress.arrived(3);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.log(), ["stuck: llm made no progress for 5.0 s while 3 pieces of work wait"]);
    let snapshot = stage.rest().await;
    let llm = snapshot.child("llm").unwrap();
    assert_eq!((llm.waiting, llm.ticks, llm.restarts), (Some(3), Some(0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_child_is_killed_and_restarted_where_so_configured() {
    let (llm, progress) = watched(OnStuck::Restart);
    let stage = Stage::open(spec(vec![llm])).await;
    progress.arrived(1);
    let cell = stage.cell("llm");
    stage.tell("llm", Order::Hang);
    cell.wait(Some(Duration::from_secs(60))).await.unwrap();
    let snapshot = stage.rest().await;
    let report = "llm made no progress for 5.0 s while 1 pieces of work wait";
    let expected = [
        format!("stuck: {report}"),
        format!("llm#1 stuck: {report}"),
        "llm restarts after 100ms".to_owned(),
        "llm#2 started".to_owned(),
    ];
    assert_eq!(stage.log()[1..], expected);
    assert_eq!(snapshot.child("llm").unwrap().waiting, Some(0), "its mailbox went with it");
}

/// An actor that blocks its thread cannot be killed: the supervisor goes on without it.
#[tokio::test]
async fn a_child_that_blocks_its_thread_is_left_behind() {
    let (gate, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(Some(blocked)));
    let (mut llm, progress) = watched(OnStuck::Restart);
    llm.start = std::sync::Arc::new(move |incarnation, supervisor| {
        let blocked = blocked.clone();
        Box::pin(async move {
            if incarnation.0 == 1 {
                let receiver = blocked.lock().unwrap().take();
                return crate::stage::blocking(supervisor, receiver.unwrap()).await;
            }
            crate::stage::obedient(supervisor).await
        })
    });
    llm.health =
        Some(Health { progress: progress.clone(), stuck_after: Duration::from_millis(20), on_stuck: OnStuck::Restart });
    let mut spec = spec(vec![llm]);
    (spec.check_every, spec.kill_within) = (Duration::from_millis(5), Duration::from_millis(5));
    let stage = Stage::open(spec).await;
    progress.arrived(1);
    stage.tell("llm", Order::Hang);
    stage.heard("llm#2 started").await;
    assert!(stage.rest().await.healthy());
    drop(gate);
}
