//! Supervisors over supervisors.

use std::time::Duration;

use mstar_supervisor::{ChildSpec, Intensity, Ledger, OnExhausted, StartError, SupervisorRef, SupervisorSpec};

use crate::stage::{Log, Order, Stage, child, spec};

/// A supervisor of `leaf` that escalates at its second crash, as a child of another one.
fn inner(log: Log, ledger: Ledger, limits: (Intensity, Option<Intensity>)) -> ChildSpec {
    ChildSpec::new("inner", move |_, parent| {
        let (log, ledger) = (log.clone(), ledger.clone());
        async move {
            let leaf = ChildSpec { intensity: limits.0, ..child("leaf") };
            let on_exhausted = OnExhausted::Escalate;
            let spec = SupervisorSpec { on_exhausted, ledger, intensity: limits.1, ..spec(vec![leaf, child("other")]) };
            let supervisor = SupervisorRef::start_linked(spec, log.observer(), parent);
            let supervisor = supervisor.await.map_err(|error| StartError(error.to_string()))?;
            supervisor.settled(Duration::from_secs(60)).await.map_err(|error| StartError(error.to_string()))?;
            Ok(supervisor.cell())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_child_takes_its_supervisor_with_it_and_incarnations_count_on() {
    let (log, once) = (Log::default(), Intensity { max_restarts: 0, within: Duration::from_secs(60) });
    let stage = Stage::open(spec(vec![inner(log.clone(), Ledger::default(), (once, None))])).await;
    let leaf = log.cell("leaf");
    leaf.send_message(Order::Panic("deep trouble")).unwrap();
    stage.cell("inner").wait(None).await.unwrap();
    stage.rest().await;
    let why = "exceeded 0 restarts within 60s; last: failed: deep trouble";
    let expected = [
        "leaf#1 started",
        "other#1 started",
        "leaf#1 failed: deep trouble",
        &format!("leaf down: {why}"),
        "other#1 stopped",
        "leaf#2 started",
        "other#2 started",
    ];
    assert_eq!(log.lines(), expected);
    assert_eq!(stage.log()[1], format!("inner#1 failed: leaf {why}"));
}

#[tokio::test(start_paused = true)]
async fn all_children_together_can_exceed_the_supervisors_intensity() {
    let often = Intensity { max_restarts: 100, within: Duration::from_secs(60) };
    let limits = (often, Some(Intensity { max_restarts: 1, within: Duration::from_secs(60) }));
    let log = Log::default();
    let stage = Stage::open(spec(vec![inner(log.clone(), Ledger::default(), limits)])).await;
    let inner = stage.cell("inner");
    log.cell("leaf").send_message(Order::Panic("one")).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    log.cell("other").send_message(Order::Panic("two")).unwrap();
    inner.wait(None).await.unwrap();
    stage.rest().await;
    let why = "all children together exceeded 1 restarts within 60s; the last was other: failed: two";
    assert_eq!(stage.log()[1], format!("inner#1 failed: {why}"));
}
