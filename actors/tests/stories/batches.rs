//! How many batches requests take: none in vain, and those that run side by side go together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mstar_actors::{BEFORE_EXECUTE, Faults};
use mstar_contract::{FinishReason, Request};
use mstar_engines::fake::{FakeLlmLimits, FakeSettings};
use tokio::task::JoinSet;

use crate::ask::request;
use crate::life::timed;
use crate::world::{Setup, World};

/// Counts the batches of the language model.
#[derive(Default)]
struct Batches(AtomicUsize);

impl Batches {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Faults for Batches {
    fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
        if point == BEFORE_EXECUTE && actor.starts_with("fake.llm") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

async fn counted(llm: FakeLlmLimits) -> (Arc<World>, Arc<Batches>) {
    let batches = Arc::<Batches>::default();
    let settings = FakeSettings { llm, ..timed() };
    let setup = Setup { settings, faults: Arc::<Batches>::clone(&batches), ..Setup::default() };
    (Arc::new(World::start(setup).await), batches)
}

fn chat(text: &str, max_tokens: u32) -> Request {
    let mut request = request("chat", text);
    request.sampling.max_tokens = Some(max_tokens);
    request
}

#[tokio::test(start_paused = true)]
async fn a_reply_takes_as_many_batches_as_it_has_tokens() {
    let (world, batches) = counted(FakeLlmLimits::default()).await;
    let mut reasons = Vec::new();
    for n in 0..24 {
        let mut asked = chat(&format!("number {n}"), if n % 2 == 0 { 5 } else { 200 });
        if n % 3 == 0 {
            asked.sampling.stop = vec!["a".to_owned()];
        }
        let (_, summary) = world.ask(asked).await.unwrap();
        assert_eq!(batches.take(), summary.usage.completion_tokens as usize, "number {n}");
        reasons.extend(summary.finish);
    }
    assert!(reasons.contains(&FinishReason::Length) && reasons.contains(&FinishReason::Stop));
    world.assert_empty().await;
}

#[tokio::test(start_paused = true)]
async fn replies_side_by_side_take_as_many_batches_as_the_longest() {
    let (world, batches) = counted(FakeLlmLimits::default()).await;
    let mut all = JoinSet::new();
    for n in 0..16 {
        let world = Arc::clone(&world);
        all.spawn(async move { world.ask(chat(&format!("number {n}"), 300)).await });
    }
    let mut longest = 0;
    while let Some(reply) = all.join_next().await {
        longest = longest.max(reply.unwrap().unwrap().1.usage.completion_tokens as usize);
    }
    let took = batches.take();
    // The first batch may have left before the others came.
    assert!(longest > 40 && took <= longest + 1, "{took} batches for {longest} tokens");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_in_pieces_goes_on_while_another_waits_for_pages() {
    let llm = FakeLlmLimits { pages: 5, prefill_chunk: 2, ..FakeLlmLimits::default() };
    let (world, _) = counted(llm).await;
    let mut all = JoinSet::new();
    for n in 0..3 {
        let world = Arc::clone(&world);
        all.spawn(async move { world.ask(chat(&format!("a prompt of quite a few words, number {n}"), 40)).await });
    }
    while let Some(reply) = all.join_next().await {
        assert!(reply.unwrap().unwrap().1.finish.is_some());
    }
    world.assert_empty().await;
}
