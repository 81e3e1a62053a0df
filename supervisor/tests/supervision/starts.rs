//! Starts that go wrong, and the shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mstar_supervisor::{ChildSpec, ChildState, Incarnation, Intensity, StartError, SupervisorError, SupervisorRef};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus};

use crate::stage::{Log, Obedient, Order, Stage, child, obedient, spec};

/// An actor that panics in `post_start`: its spawner thinks it is up.
struct Stillborn;

impl Actor for Stillborn {
    type Msg = Order;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_start(&self, _: ActorRef<Order>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        panic!("born dead")
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_panics_or_fails_is_an_exit_with_its_reason() {
    let a = ChildSpec::new("a", |incarnation: Incarnation, supervisor| {
        assert!(incarnation.0 != 1, "first start panics before its future");
        async move {
            match incarnation.0 {
                2 => panic!("second start panics in its future"),
                3 => Err(StartError("no weights".to_owned())),
                _ => obedient(supervisor).await,
            }
        }
    });
    let stage = Stage::open(spec(vec![a])).await;
    let expected = [
        "a#1 start failed: first start panics before its future",
        "a restarts after 100ms",
        "a#2 start failed: second start panics in its future",
        "a restarts after 200ms",
        "a#3 start failed: no weights",
        "a restarts after 400ms",
        "a#4 started",
    ];
    assert_eq!(stage.log(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_never_starts_is_marked_down() {
    let mut a = ChildSpec::new("a", |_, _| async { Err(StartError("no weights".to_owned())) });
    a.intensity = Intensity { max_restarts: 1, within: Duration::from_secs(60) };
    let stage = Stage::open(spec(vec![a, child("b")])).await;
    assert_eq!(stage.state("a").await, ChildState::Down);
    assert_eq!(stage.state("b").await, ChildState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_dies_during_its_start_is_restarted() {
    let a = ChildSpec::new("a", |incarnation: Incarnation, supervisor: ActorCell| async move {
        if incarnation.0 > 1 {
            return obedient(supervisor).await;
        }
        let (actor, ended) = Actor::spawn_linked(None, Stillborn, (), supervisor).await?;
        ended.await.map_err(|error| StartError(error.to_string()))?;
        Ok(actor.get_cell())
    });
    let stage = Stage::open(spec(vec![a])).await;
    stage.rest().await;
    assert_eq!(stage.log(), ["a#1 started", "a#1 failed: born dead", "a restarts after 100ms", "a#2 started"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_spawned_without_a_link_is_watched_all_the_same() {
    let a = ChildSpec::new("a", |_, _| async {
        let (actor, _) = Actor::spawn(None, Obedient, ()).await?;
        Ok(actor.get_cell())
    });
    let stage = Stage::open(spec(vec![a])).await;
    stage.crash("a", Order::Panic("oops")).await;
    assert_eq!(stage.log(), ["a#1 started", "a#1 failed: oops", "a restarts after 100ms", "a#2 started"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_is_given_up_with_what_it_left_behind() {
    let mut a = ChildSpec::new("a", |incarnation: Incarnation, supervisor: ActorCell| async move {
        let cell = obedient(supervisor).await?;
        if incarnation.0 == 1 {
            std::future::pending::<()>().await;
        }
        Ok(cell)
    });
    a.start_within = Duration::from_secs(3);
    let stage = Stage::open(spec(vec![a, child("b")])).await;
    let expected = ["b#1 started", "a#1 start failed: not up within 3s", "a restarts after 100ms", "a#2 started"];
    assert_eq!(stage.log(), expected, "a slow start delays no sibling");
    let alive =
        stage.supervisor.cell().get_children().into_iter().filter(|cell| cell.get_status() == ActorStatus::Running);
    assert_eq!(alive.count(), 2, "the first start's actor is gone");
}

#[tokio::test(start_paused = true)]
async fn shutdown_goes_backwards_and_kills_who_will_not_go() {
    let mut b = child("b");
    b.shutdown_within = Duration::from_secs(1);
    let stage = Stage::open(spec(vec![child("a"), b, child("c")])).await;
    let cells = ["a", "b", "c"].map(|name| stage.cell(name));
    stage.tell("b", Order::Hang);
    tokio::task::yield_now().await;
    stage.supervisor.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(stage.log()[3..], ["c#1 stopped", "b#1 stopped", "a#1 stopped"]);
    assert!(cells.iter().all(|cell| cell.get_status() == ActorStatus::Stopped));
    assert!(matches!(stage.supervisor.snapshot(Duration::from_secs(1)).await, Err(SupervisorError::Gone)));
    stage.supervisor.shutdown(Duration::from_secs(10)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_once_shutdown_began() {
    let starts = Arc::new(AtomicU64::new(0));
    let counted = starts.clone();
    let a = ChildSpec::new("a", move |_, supervisor| {
        counted.fetch_add(1, Ordering::Relaxed);
        obedient(supervisor)
    });
    let stage = Stage::open(spec(vec![a])).await;
    let cell = stage.cell("a");
    cell.kill();
    cell.wait(None).await.unwrap();
    stage.supervisor.shutdown(Duration::from_secs(1)).await.unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(starts.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn children_die_with_their_supervisor() {
    let stage = Stage::open(spec(vec![child("a")])).await;
    let cell = stage.cell("a");
    stage.supervisor.cell().kill();
    cell.wait(Some(Duration::from_secs(1))).await.unwrap();
    assert_eq!(cell.get_status(), ActorStatus::Stopped);
}

#[tokio::test]
async fn two_children_of_one_name_are_refused() {
    let refused = SupervisorRef::start(spec(vec![child("a"), child("a")]), Log::default().observer()).await;
    assert_eq!(refused.unwrap_err().to_string(), "two children are called a");
}
