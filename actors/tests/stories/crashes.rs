//! Node actors die at random points under many mixed requests: every request gets the bytes it would have got.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use mstar_actors::{AFTER_EXECUTE, BEFORE_EXECUTE, Faults, IngressLimits, ON_ITEMS, Route};
use mstar_contract::{ClientEvent, FailureKind, Request};
use mstar_engines::fake::{FakeSettings, FaultPlan, Reach};
use tokio::task::JoinSet;

use crate::ask::{Reply, read, request};
use crate::life::timed;
use crate::world::{Setup, World};

/// Strikes node actors at random points, so many times.
struct Dice {
    seed: u64,
    one_in: u64,
    rolled: AtomicU64,
    left: AtomicU32,
}

impl Dice {
    fn new(seed: u64, one_in: u64, times: u32) -> Arc<Self> {
        Arc::new(Self { seed, one_in, rolled: AtomicU64::new(0), left: AtomicU32::new(times) })
    }
}

impl Faults for Dice {
    fn strike(&self, point: &'static str, _: &str) -> Option<String> {
        if ![BEFORE_EXECUTE, AFTER_EXECUTE, ON_ITEMS].contains(&point) {
            return None;
        }
        let roll = self.rolled.fetch_add(1, Ordering::Relaxed);
        let mut hash = self.seed ^ roll.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^= hash >> 32;
        if !hash.is_multiple_of(self.one_in) {
            return None;
        }
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.ok().map(|left| format!("strike {left} of seed {}", self.seed))
    }
}

const WALKS: [&str; 7] = ["chat", "converse", "speak", "nested", "fan", "recall", "flood"];

/// The request of this number: the same whenever it is asked.
fn asked(n: usize) -> Request {
    let mut request = request(WALKS[n % WALKS.len()], &format!("Request {n}. Go on. And on!"));
    request.options.insert("items".to_owned(), serde_json::json!(150));
    request
}

/// Serves many mixed requests while actors die, and compares with a deployment where none does.
async fn every_request_gets_its_bytes(count: usize, setup: Setup) {
    let calm = World::default().await;
    let ingress = IngressLimits { max_running: 32, max_queued: count, ..IngressLimits::default() };
    let world = Arc::new(World::start(Setup { ingress, ..setup }).await);
    let mut all = JoinSet::new();
    for n in 0..count {
        let stream = world.submit(asked(n)).await.expect("it is admitted");
        all.spawn(async move { (n, read(stream).await) });
    }
    while let Some(reply) = all.join_next().await {
        let (n, reply) = reply.expect("the reader lives");
        let walk = WALKS[n % WALKS.len()];
        let reply = reply.unwrap_or_else(|failure| panic!("request {n}, {walk}: {failure}")).0.bytes();
        let expected = calm.ask(asked(n)).await.expect("nothing disturbs it").0.bytes();
        assert_eq!(reply, expected, "request {n}, {walk}");
    }
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn node_actors_die_at_random_and_no_byte_differs() {
    for seed in 1..=6 {
        let dice = Dice::new(seed, 40, 50);
        let setup = Setup { settings: timed(), faults: dice.clone(), ..Setup::default() };
        every_request_gets_its_bytes(60, setup).await;
        assert_eq!(dice.left.load(Ordering::Relaxed), 0, "all strikes were made");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_die_at_random_and_no_byte_differs() {
    let dice = Dice::new(11, 30, 50);
    let setup = Setup { settings: timed(), faults: dice.clone(), replicas: 2, ..Setup::default() };
    every_request_gets_its_bytes(60, setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_actors_die_on_real_threads_and_no_byte_differs() {
    let dice = Dice::new(3, 40, 50);
    every_request_gets_its_bytes(60, Setup { faults: dice.clone(), thread: true, ..Setup::default() }).await;
    assert!(dice.left.load(Ordering::Relaxed) < 40, "some strikes were made");
}

#[tokio::test(start_paused = true)]
async fn engines_panic_at_random_and_no_byte_differs() {
    for (reach, one_in) in [(Reach::Op, 25), (Reach::Node, 4)] {
        let faults = FaultPlan::new(5, reach, one_in, 30);
        let settings = FakeSettings { faults: Arc::clone(&faults), ..timed() };
        every_request_gets_its_bytes(60, Setup { settings, ..Setup::default() }).await;
        assert!(faults.struck() > 5, "{} strikes", faults.struck());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_too_often_is_down_and_its_walks_are_unavailable() {
    struct KillLlm;
    impl Faults for KillLlm {
        fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
            (point == BEFORE_EXECUTE && actor.starts_with("fake.llm")).then(|| "struck".to_owned())
        }
    }
    let setup = Setup { settings: timed(), faults: Arc::new(KillLlm), max_restarts: 3, ..Setup::default() };
    let world = World::start(setup).await;
    let running = world.submit(request("chat", "hello")).await.unwrap();
    assert_eq!(read(running).await.unwrap_err().kind, FailureKind::Unavailable);
    assert_eq!(world.failure(request("converse", "hello")).await, FailureKind::Unavailable);
    assert_eq!(world.reply("fan", "abc").await.text, "ABC|cba|abc", "the rest serves on");
    world.assert_empty().await;
    world.supervisor.shutdown(Duration::from_secs(10)).await.unwrap();
}

/// Kills a node's actor in a deployment that restarts none, and waits until it is down. No virtual time goes by.
async fn kill_for_good(world: &World, name: &str) {
    let node = world.routes.find(name).expect("invariant: the story names its own nodes");
    let Route::Live(actor, _) = world.routes.route(node) else { panic!("{name} is not up") };
    actor.kill();
    while !world.routes.is_down(node) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_done_with_a_node_ends_well_though_it_is_down() {
    let calm = World::default().await.reply("converse", "tell me").await;
    let world = World::start(Setup { settings: timed(), max_restarts: 0, ..Setup::default() }).await;
    let mut stream = world.submit(request("converse", "tell me")).await.unwrap();
    let mut begun = Reply::default();
    loop {
        let Some(ClientEvent::Emitted(emission)) = stream.next().await else {
            panic!("it ended before it was watched")
        };
        begun.take(&emission.value);
        let position = world.ingress.position(stream.id()).await.unwrap().unwrap();
        if !position.partitions.iter().any(|partition| partition.partition == "main") {
            assert!(!position.partitions.is_empty(), "the reply is yet to be spoken");
            break;
        }
    }
    kill_for_good(&world, "fake.llm#0").await;
    let rest = read(stream).await.unwrap().0;
    assert!(rest.emissions > 0);
    let (text, audio) = (begun.text + &rest.text, [begun.audio, rest.audio].concat());
    assert_eq!((text, audio), calm.bytes());
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_needs_a_node_later_fails_when_it_does() {
    let ingress = IngressLimits { client_credit: 1, ..IngressLimits::default() };
    let setup = Setup { settings: timed(), ingress, max_restarts: 0, ..Setup::default() };
    let world = World::start(setup).await;
    let stream = world.submit(request("chat", "hello")).await.unwrap();
    // The client takes nothing, so that the next step is held back.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let position = world.ingress.position(stream.id()).await.unwrap().unwrap();
    assert!(position.held > 0 && position.partitions[0].steps.is_empty(), "{position:?}");
    kill_for_good(&world, "fake.llm#0").await;
    assert!(world.ingress.position(stream.id()).await.unwrap().is_some(), "nothing of it was lost yet");
    assert_eq!(read(stream).await.unwrap_err().kind, FailureKind::Unavailable);
    world.assert_empty().await;
}
