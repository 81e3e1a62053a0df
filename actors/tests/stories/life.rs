//! How requests end: well, refused, cancelled, late, failed, drained. Nothing is left of them.

use std::sync::Arc;
use std::time::Duration;

use mstar_actors::{AFTER_EMIT, Faults, IngressLimits, Submit};
use mstar_contract::{ClientEvent, FailureKind, TraceContext};
use mstar_engines::fake::{ERROR_WORD, FakeLlmLimits, FakeSettings, PANIC_WORD, ServiceTime};
use tokio::task::JoinSet;

use crate::ask::{read, request};
use crate::world::{Setup, World};

/// Batches take a millisecond and a half.
pub(crate) fn timed() -> FakeSettings {
    let service = ServiceTime { per_batch: Duration::from_millis(1), per_row: Duration::from_micros(30) };
    FakeSettings { service, ..FakeSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_refused_before_they_take_a_place() {
    let world = World::default().await;
    assert_eq!(world.failure(request("dance", "x")).await, FailureKind::Invalid);
    let mut long = request("chat", "x");
    long.sampling.max_tokens = Some(1_000_000);
    let failure = world.ask(long).await.unwrap_err();
    assert_eq!((failure.kind, failure.field.as_deref()), (FailureKind::Invalid, Some("max_tokens")));
    assert_eq!(world.ingress.snapshot().await.unwrap().running.len(), 0);
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_fit_is_refused_with_the_numbers() {
    let llm = FakeLlmLimits { pages: 4, ..FakeLlmLimits::default() };
    let settings = FakeSettings { llm, ..timed() };
    let world = World::start(Setup { settings, ..Setup::default() }).await;
    let mut long = request("chat", "x");
    long.sampling.max_tokens = Some(4000);
    let failure = world.ask(long).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert!(failure.message.contains("KV pages"), "{failure}");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_find_no_pages_wait_for_others_to_end() {
    let llm = FakeLlmLimits { pages: 12, ..FakeLlmLimits::default() };
    let world = Arc::new(World::start(Setup { settings: FakeSettings { llm, ..timed() }, ..Setup::default() }).await);
    let mut all = JoinSet::new();
    for n in 0..40 {
        let world = Arc::clone(&world);
        all.spawn(async move {
            let mut request = request("chat", &format!("number {n}"));
            request.sampling.max_tokens = Some(32);
            world.ask(request).await
        });
    }
    while let Some(reply) = all.join_next().await {
        assert!(reply.unwrap().unwrap().1.finish.is_some());
    }
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_fails_or_panics_fails_its_request_and_no_other() {
    let world = Arc::new(World::start(Setup { settings: timed(), ..Setup::default() }).await);
    let calm = world.reply("fan", "fine").await;
    let mut all = JoinSet::new();
    for n in 0..12 {
        let (world, calm) = (Arc::clone(&world), calm.clone());
        all.spawn(async move {
            match n % 3 {
                0 => assert_eq!(world.failure(request("fan", PANIC_WORD)).await, FailureKind::Internal),
                1 => assert_eq!(world.failure(request("chat", ERROR_WORD)).await, FailureKind::Internal),
                _ => assert_eq!(world.reply("fan", "fine").await, calm),
            }
        });
    }
    while let Some(outcome) = all.join_next().await {
        outcome.unwrap();
    }
    assert_eq!(world.node("fake.text#0").await.incarnation.0, 1, "a row's panic is no loss of the node");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_the_running_and_the_waiting() {
    let ingress = IngressLimits { max_running: 1, ..IngressLimits::default() };
    let world = World::start(Setup { settings: timed(), ingress, ..Setup::default() }).await;
    let submit = |walk: &str, deadline| Submit {
        request: Arc::new(request(walk, "long")),
        served: Arc::clone(&world.served),
        deadline: Some(Duration::from_millis(deadline)),
        trace: TraceContext::default(),
    };
    let running = world.ingress.submit(submit("converse", 10)).await.unwrap();
    let waiting = world.ingress.submit(submit("echo", 5)).await.unwrap();
    let patient = world.ingress.submit(submit("echo", 500)).await.unwrap();
    assert_eq!(read(waiting).await.unwrap_err().kind, FailureKind::Deadline);
    assert_eq!(read(running).await.unwrap_err().kind, FailureKind::Deadline);
    assert_eq!(read(patient).await.unwrap().0.text, "long");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn cancelled_requests_leave_nothing_behind() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let walks = ["chat", "converse", "speak", "flood", "nested"];
    let mut streams = Vec::new();
    for n in 0..200 {
        let mut request = request(walks[n % walks.len()], &format!("Request {n}. Go on. And on."));
        request.options.insert("items".to_owned(), serde_json::json!(300));
        streams.push(world.submit(request).await.unwrap());
        if n % 7 == 0 {
            tokio::time::sleep(Duration::from_micros(900)).await;
        }
    }
    let mut kept = Vec::new();
    for (n, mut stream) in streams.into_iter().enumerate() {
        match n % 4 {
            0 => drop(stream),
            1 => world.ingress.cancel(stream.id()),
            2 => {
                stream.next().await;
                drop(stream);
            }
            _ => kept.push(stream),
        }
    }
    for stream in kept {
        read(stream).await.unwrap();
    }
    world.assert_empty().await;
    let ingress = world.ingress.snapshot().await.unwrap();
    assert_eq!((ingress.running.len(), ingress.queued), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_id_is_told_to_the_client_once() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("converse", "go on")).await.unwrap();
    world.ingress.cancel(stream.id());
    world.ingress.cancel(stream.id());
    assert_eq!(read(stream).await.unwrap_err().kind, FailureKind::Cancelled);
    world.assert_empty().await;
}

struct KillWalkers;

impl Faults for KillWalkers {
    fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
        (point == AFTER_EMIT && actor.starts_with("doomed")).then(|| "struck".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_walker_that_dies_fails_its_request_and_releases_everything() {
    let setup = Setup { settings: timed(), faults: Arc::new(KillWalkers), ..Setup::default() };
    let world = World::start(setup).await;
    let mut doomed = request("converse", "go on");
    doomed.id = "doomed".into();
    let doomed = world.submit(doomed).await.unwrap();
    let other = world.submit(request("converse", "go on")).await.unwrap();
    let mut failures = 0;
    let mut stream = doomed;
    while let Some(event) = stream.next().await {
        if let ClientEvent::Failed(failure) = event {
            assert_eq!(failure.kind, FailureKind::Internal);
            failures += 1;
        }
    }
    assert_eq!(failures, 1);
    read(other).await.unwrap();
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn an_ingress_that_dies_leaves_nothing_of_its_requests() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("converse", "go on")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.routes.ingress().unwrap().kill();
    assert_eq!(read(stream).await.unwrap_err().kind, FailureKind::Internal);
    world.assert_empty().await;
    world.reply("echo", "the next one is served").await;
}

#[tokio::test(start_paused = true)]
async fn an_ingress_that_dies_while_it_drains_comes_back_draining() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("converse", "go on")).await.unwrap();
    let ingress = world.ingress.clone();
    let drained = tokio::spawn(async move { ingress.drain(Duration::from_secs(60)).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.routes.ingress().unwrap().kill();
    assert!(!drained.await.unwrap().unwrap(), "what ran died with it");
    assert_eq!(read(stream).await.unwrap_err().kind, FailureKind::Internal);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let now = world.ingress.snapshot().await.unwrap();
    assert!(now.draining && now.admitted == 0, "{now:?}");
    assert_eq!(world.failure(request("echo", "late")).await, FailureKind::Overloaded);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_requests_end_and_admits_none() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("chat", "go on")).await.unwrap();
    let ingress = world.ingress.clone();
    let drained = tokio::spawn(async move { ingress.drain(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(world.failure(request("echo", "late")).await, FailureKind::Overloaded);
    read(stream).await.unwrap();
    assert!(drained.await.unwrap().unwrap(), "all ended by themselves");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_cancels() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("chat", "go on")).await.unwrap();
    assert!(!world.ingress.drain(Duration::from_millis(3)).await.unwrap());
    assert_eq!(read(stream).await.unwrap_err().kind, FailureKind::Unavailable);
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn the_admin_view_shows_where_a_request_stands() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let stream = world.submit(request("converse", "go on")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let position = world.ingress.position(stream.id()).await.unwrap().unwrap();
    let main = position.partitions.iter().find(|partition| partition.partition == "main").unwrap();
    assert_eq!(main.walk, "converse");
    assert_eq!(main.loops[0].0, "generate");
    assert_eq!(main.steps[0].1, "fake.llm#0");
    read(stream).await.unwrap();
}
