//! The benchmark against the scripted model, over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mstar_config::Deployment;
use mstar_runtime::{Boot, Cluster, Server};
use mstar_scenarios::{Bench, Load, Question, Row, Scenario, Target};
use mstar_zoo::Zoo;
use serde_json::Map;

const DEPLOYMENT: &str = "[model.fake]\n[[rank]]\nname = 'cpu0'\nthreads = 1\n[limits]\nmax_concurrent = 4\n";

/// A server with the scripted model.
struct Served {
    cluster: Cluster,
    server: Server,
}

impl Served {
    async fn boot() -> Self {
        let zoo = Zoo::with_fake().unwrap();
        let deployment = Deployment::parse("bench.toml", DEPLOYMENT, &zoo.catalogue()).unwrap();
        let cluster = Cluster::boot(Boot::new(deployment, zoo)).await.unwrap();
        let listener = Server::reserve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let server = Server::start(listener, &cluster).unwrap();
        Self { cluster, server }
    }

    fn bench(&self, scenario: Scenario) -> Bench {
        Bench {
            target: Target::find(&format!("http://{}", self.server.address()), None).unwrap(),
            scenario,
            model: "fake".to_owned(),
            max_tokens: 8,
            prompt: None,
            prompt_words: 0,
            seed: 3,
            question: Question::Text,
            fields: Map::new(),
            pid: Some(std::process::id()),
            deadline: Duration::from_secs(60),
        }
    }

    async fn close(self) {
        self.server.close(Duration::from_secs(5)).await;
        self.cluster.shutdown().await;
    }
}

/// Measures one load with two requests before it, and checks that all are answered and heard of.
async fn row(bench: &Bench, load: Load, requests: usize) -> Row {
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heard);
    let row = bench
        .row(load, requests, 2, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .await;
    assert_eq!((row.answered, row.failed()), (requests, 0), "{:#}", row.json());
    assert_eq!(heard.load(Ordering::Relaxed), requests + 2);
    row
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_gets_every_answer_and_counts_it() {
    let served = Served::boot().await;
    let chat = served.bench(Scenario::Chat);
    for load in [Load::Closed(4), Load::Waves(3), Load::Open(200.0)] {
        let row = row(&chat, load, 8).await;
        assert!(row.tokens_told && row.tokens > 0, "{:#}", row.json());
        assert!(row.mean_batch.values().all(|&mean| (1.0..=16.0).contains(&mean)), "{:?}", row.mean_batch);
        assert!(row.mean_batch.keys().any(|node| node.contains("fake.llm")), "{:?}", row.mean_batch);
        assert!(row.peak_memory > Some(1 << 20));
    }
    let speak = row(&served.bench(Scenario::Speak), Load::Closed(2), 4).await;
    assert!(speak.audio > 0.0 && speak.first_audio_ms.is_some() && speak.first_text_ms.is_none());
    let converse = row(&served.bench(Scenario::Converse), Load::Closed(2), 4).await;
    assert!(converse.first_text_ms.is_some(), "{:#}", converse.json());
    served.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_is_told_and_not_measured() {
    let served = Served::boot().await;
    let transcribe = served.bench(Scenario::Transcribe);
    let refused = transcribe.row(Load::Closed(1), 2, 0, |_| {}).await;
    assert_eq!((refused.answered, refused.failed()), (0, 2));
    assert!(refused.failures.keys().all(|why| why.starts_with("4")), "{:?}", refused.failures);
    let mut unknown = served.bench(Scenario::Chat);
    unknown.fields.insert("bogus".to_owned(), true.into());
    let refused = unknown.row(Load::Closed(1), 1, 0, |_| {}).await;
    assert!(refused.failures.keys().next().unwrap().contains("bogus"), "{:?}", refused.failures);
    served.close().await;
}
