//! Who is slow slows those behind: memory stays bounded, nothing is lost, what is too much is refused at once.

use std::sync::Arc;
use std::time::Duration;

use mstar_actors::{IngressLimits, Served, Submit};
use mstar_contract::{FailureKind, Invalid, Model, ModelCard, NextWalk, Plan, Request, TraceContext, Value};
use mstar_engines::fake::FakeVocoder;
use mstar_graph::{ChunkPolicy, Graph, GraphBuilder, Modality, ModelId, Stream, repeat, step};

use crate::ask::{read, request};
use crate::life::timed;
use crate::world::{Setup, World};

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_stops_its_producer() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let mut flood = request("flood", "item");
    flood.options.insert("items".to_owned(), serde_json::json!(500));
    let stream = world.submit(flood).await.unwrap();
    let reading = tokio::spawn(read(stream));
    let mut most = 0;
    let mut held_back = false;
    while !reading.is_finished() {
        let (vocoder, text) = (world.node("fake.vocoder#0").await, world.node("fake.text#0").await);
        most = most.max(vocoder.buffered);
        held_back |= text.outgoing > 0 && text.steps == 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(most > 0 && most <= 64, "{most} items in the inbox");
    assert!(held_back, "the producing step is not done before its items have left");
    reading.await.unwrap().unwrap();
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_stops_its_request_and_no_other() {
    let ingress = IngressLimits { client_credit: 4, ..IngressLimits::default() };
    let world = World::start(Setup { settings: timed(), ingress, ..Setup::default() }).await;
    let expected = world.reply("converse", "go on").await.bytes();
    let slow = world.submit(request("converse", "go on")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = world.ingress.position(slow.id()).await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = world.ingress.position(slow.id()).await.unwrap().unwrap();
    let loops = |position: &mstar_actors::WalkerPosition| position.partitions[0].loops.clone();
    assert_eq!(loops(&before), loops(&after), "it stands still");
    assert!(after.held <= 4, "{} emissions held", after.held);
    assert_eq!(world.reply("converse", "go on").await.bytes(), expected);
    assert_eq!(read(slow).await.unwrap().0.bytes(), expected);
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_refused_beyond_the_queue_and_the_rest_is_served() {
    let ingress = IngressLimits { max_running: 8, max_queued: 16, ..IngressLimits::default() };
    let world = World::start(Setup { settings: timed(), ingress, ..Setup::default() }).await;
    let (mut admitted, mut refused) = (Vec::new(), 0);
    for n in 0..500 {
        match world.submit(request("chat", &format!("number {n}"))).await {
            Ok(stream) => admitted.push(stream),
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::Overloaded);
                refused += 1;
            }
        }
    }
    assert_eq!((admitted.len(), refused), (24, 476));
    for stream in admitted {
        assert!(read(stream).await.unwrap().1.finish.is_some());
    }
    world.assert_empty().await;
}

/// A stream of many items, of which the consumer wants two.
struct Sated(Arc<Graph>);

struct Both;

impl Model for Sated {
    fn id(&self) -> ModelId {
        "sated".into()
    }

    fn graph(&self) -> &Arc<Graph> {
        &self.0
    }

    fn card(&self) -> ModelCard {
        ModelCard::default()
    }

    fn plan(&self, _: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        Ok(Box::new(Both))
    }
}

impl Plan for Both {
    fn begin(&self) -> Vec<NextWalk> {
        vec![NextWalk::new("from", "emit").input("in", Value::text("x")), NextWalk::new("to", "taste")]
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_has_enough_does_not_keep_its_producer_waiting() {
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    let taste = step("vocoder", "speak").stream_in("items", "items").client("audio", Modality::Audio);
    let mut graph = GraphBuilder::new();
    graph
        .node("text", "fake.text")
        .node("vocoder", "fake.vocoder")
        .partition("from")
        .partition("to")
        .stream(Stream::new("items", "from", "to", ChunkPolicy::Fixed(1)))
        .walk("from", "emit", step("text", "emit").input("in").stream_out("item", "items"))
        .walk("to", "taste", repeat("twice", 2, taste));
    let model = Arc::new(Sated(graph.build().unwrap()));
    let nodes = ["text", "vocoder"];
    let bindings = world.served.bindings().iter().filter(|binding| nodes.contains(&binding.node.as_str())).cloned();
    let served = Arc::new(Served::new(model, bindings.collect()).unwrap());
    let mut many = request("flood", "x");
    many.options.insert("items".to_owned(), serde_json::json!(1000));
    let (request, trace) = (Arc::new(many), TraceContext::default());
    let stream = world.ingress.submit(Submit { request, served, deadline: None, trace }).await.unwrap();
    let (reply, _) = read(stream).await.unwrap();
    assert_eq!(reply.audio.len(), "x0x1".len() * FakeVocoder::SAMPLES_PER_BYTE);
    world.assert_empty().await;
}
