//! Every shape of a graph gives what it should, alone and among others.

use std::sync::Arc;

use mstar_contract::FinishReason;
use mstar_engines::fake::FakeVocoder;
use tokio::task::JoinSet;

use crate::ask::request;
use crate::world::{Setup, World};

#[tokio::test(start_paused = true)]
async fn a_chat_streams_its_reply_and_counts_its_tokens() {
    let world = World::default().await;
    let (reply, summary) = world.ask(request("chat", "hello there")).await.unwrap();
    assert!(!reply.text.is_empty());
    assert!(reply.emissions > 1, "streamed");
    assert!(summary.usage.prompt_tokens > 0);
    assert!(summary.usage.completion_tokens as usize >= reply.emissions);
    assert!(summary.finish.is_some());
    assert_eq!(world.reply("chat", "hello there").await, reply, "the same request gets the same reply");
    assert_ne!(world.reply("chat", "hello you").await.text, reply.text);
    let mut other = request("chat", "hello there");
    other.seed = 43;
    assert_ne!(world.ask(other).await.unwrap().0.text, reply.text, "another seed, other draws");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_chat_of_one_token_ends_before_its_loop_begins() {
    let world = World::default().await;
    let mut short = request("chat", "hello there");
    short.sampling.max_tokens = Some(1);
    let (_, summary) = world.ask(short).await.unwrap();
    assert_eq!((summary.usage.completion_tokens, summary.finish), (1, Some(FinishReason::Length)));
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn steps_loops_branches_and_kept_values_give_what_the_graph_says() {
    let world = World::default().await;
    assert_eq!(world.reply("echo", "as it is").await.text, "as it is");
    assert_eq!(world.reply("recall", "a note").await.text, "A NOTE");
    assert_eq!(world.reply("fan", "abc").await.text, "ABC|cba|abc");
    assert_eq!(world.reply("nested", "x").await.text, "x+,x++,x+,x++,x+,x++");
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn streams_carry_every_item_once_and_in_order() {
    let world = World::default().await;
    let spoken = |text: &str| text.len() * FakeVocoder::SAMPLES_PER_BYTE + FakeVocoder::TAIL;
    let text = "One. Two! Three? And the rest";
    let speech = world.reply("speak", text).await;
    assert_eq!(speech.audio.len(), spoken(text));
    let reply = world.reply("converse", "tell me").await;
    assert_eq!(reply.audio.len(), spoken(&reply.text));
    assert_eq!(world.reply("speak", &reply.text).await.audio, reply.audio, "the reply is what is spoken");
    assert_eq!(world.reply("chat", "tell me").await.text, reply.text);
    let mut flood = request("flood", "item");
    flood.options.insert("items".to_owned(), serde_json::json!(1000));
    let all: String = (0..1000).map(|i| format!("item{i}")).collect();
    assert_eq!(world.ask(flood).await.unwrap().0.audio.len(), spoken(&all));
    world.assert_empty().await;
}

/// Serves each of some requests alone, then all of them at once.
async fn alone_and_together(setup: Setup) {
    let world = Arc::new(World::start(setup).await);
    let walks = ["chat", "converse", "speak", "nested", "fan", "recall"];
    let asked: Vec<(&str, String)> =
        (0..48).map(|n| (walks[n % walks.len()], format!("Request {n}. Go on."))).collect();
    let mut alone = Vec::new();
    for (walk, text) in &asked {
        alone.push(world.reply(walk, text).await.bytes());
    }
    let mut together = JoinSet::new();
    for (at, (walk, text)) in asked.into_iter().enumerate() {
        let world = Arc::clone(&world);
        together.spawn(async move { (at, world.reply(walk, &text).await.bytes()) });
    }
    while let Some(reply) = together.join_next().await {
        let (at, reply) = reply.expect("the reader lives");
        assert_eq!(reply, alone[at], "request {at}");
    }
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_gets_the_same_bytes_alone_and_among_others() {
    alone_and_together(Setup::default()).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_share_the_work_and_give_the_same_bytes() {
    alone_and_together(Setup { replicas: 2, ..Setup::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compute_thread_gives_the_same_bytes_as_a_simulation() {
    alone_and_together(Setup { thread: true, ..Setup::default() }).await;
    let (threaded, simulated) =
        (World::start(Setup { thread: true, ..Setup::default() }).await, World::default().await);
    let reply = threaded.reply("converse", "tell me").await.bytes();
    assert_eq!(simulated.reply("converse", "tell me").await.bytes(), reply);
    threaded.device.stop();
}
