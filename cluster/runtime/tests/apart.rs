//! Walks of one model on two ranks.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use mstar_actors::{BEFORE_EXECUTE, Faults, NoFaults, Submit};
use mstar_config::Deployment;
use mstar_contract::{ClientEvent, Message, Part, Request, Role, Task, TraceContext};
use mstar_graph::Modality;
use mstar_runtime::{Boot, Cluster};
use mstar_zoo::Zoo;

/// `chat` has a language model of its own, on a rank of its own.
const APART: &str = "
[[rank]]
name = 'one'
threads = 1
[[rank]]
name = 'two'
threads = 1
[model.fake]
[[placement]]
node = 'fake.llm'
walks = ['fake.chat']
rank = 'two'
replicas = 2
[supervision]
max_restarts = 1000
backoff_min_ms = 0
backoff_max_ms = 1
";

async fn boot(faults: Arc<dyn Faults>) -> Cluster {
    let zoo = Zoo::with_fake().unwrap();
    let deployment = Deployment::parse("apart.toml", APART, &zoo.catalogue()).unwrap();
    Cluster::boot(Boot { faults, ..Boot::new(deployment, zoo) }).await.unwrap()
}

/// Returns the text of a reply.
async fn ask(cluster: &Cluster, walk: &str, n: usize) -> String {
    let request = Request {
        messages: vec![Message { role: Role::User, parts: vec![Part::Text(format!("number {n}. Go on.").into())] }],
        outputs: [Modality::Text].into(),
        seed: 5,
        options: [("walk".to_owned(), walk.into())].into(),
        ..Request::new(format!("{walk} {n}"), "fake", Task::Generate)
    };
    let served = Arc::clone(cluster.served("fake").unwrap());
    let submit = Submit { request: Arc::new(request), served, deadline: None, trace: TraceContext::default() };
    let mut stream = cluster.ingress().submit(submit).await.unwrap();
    let mut text = String::new();
    loop {
        match stream.next().await.unwrap() {
            ClientEvent::Emitted(emission) => text += emission.value.as_text().unwrap(),
            ClientEvent::Done(_) => return text,
            ClientEvent::Failed(failure) => panic!("{walk} {n}: {failure}"),
        }
    }
}

/// Notes which nodes compute.
#[derive(Default)]
struct Witness(Mutex<BTreeSet<String>>);

impl Faults for Witness {
    fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
        if point == BEFORE_EXECUTE {
            self.0.lock().unwrap().insert(actor.to_owned());
        }
        None
    }
}

/// Batches in which language models are struck.
const STRUCK: u32 = 15;

/// Kills each language model at every third of its first batches.
struct Killer(BTreeMap<&'static str, AtomicU32>);

impl Faults for Killer {
    fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
        let passes = self.0.get(actor).filter(|_| point == BEFORE_EXECUTE)?;
        let pass = passes.fetch_add(1, Ordering::SeqCst) + 1;
        (pass.is_multiple_of(3) && pass <= STRUCK).then(|| format!("struck at pass {pass}"))
    }
}

#[tokio::test]
async fn two_walks_of_a_model_run_on_two_ranks() {
    let witness = Arc::new(Witness::default());
    let cluster = boot(witness.clone()).await;
    let rank = |name: &str| cluster.table().nodes.iter().find(|node| node.name == name).unwrap().rank.clone();
    assert_eq!(["fake.llm#0", "fake.llm#1", "fake.llm#2"].map(rank), ["two", "two", "one"]);
    let computed = || std::mem::take(&mut *witness.0.lock().unwrap());
    let chatted = ask(&cluster, "chat", 1).await;
    assert!(computed().iter().all(|node| ["fake.llm#0", "fake.llm#1"].contains(&node.as_str())));
    assert_eq!(ask(&cluster, "converse", 1).await, chatted);
    let conversing = computed();
    assert!(conversing.contains("fake.llm#2") && !conversing.contains("fake.llm#0"), "{conversing:?}");

    let view = cluster.gateway().operations.cluster().await;
    let llm: Vec<_> = view["models"][0]["nodes"].as_array().unwrap().iter().filter(|b| b["node"] == "llm").collect();
    let place = |walk: &str| llm.iter().find(|b| b["walks"][0] == walk).unwrap()["replicas"].clone();
    assert_eq!(place("chat"), serde_json::json!(["fake.llm#0", "fake.llm#1"]));
    assert_eq!(place("converse"), serde_json::json!(["fake.llm#2"]));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_both_ranks_die_and_no_byte_differs() {
    let calm = boot(Arc::new(NoFaults)).await;
    let killer = Killer(["fake.llm#0", "fake.llm#1", "fake.llm#2"].map(|name| (name, AtomicU32::new(0))).into());
    let killer = Arc::new(killer);
    let struck = boot(killer.clone()).await;
    // Three in a round, so that the two replicas of `chat` take turns.
    for (n, walk) in ["chat", "converse", "chat"].into_iter().cycle().take(15).enumerate() {
        assert_eq!(ask(&struck, walk, n).await, ask(&calm, walk, n).await, "{walk} {n}");
    }
    assert!(killer.0.values().all(|passes| passes.load(Ordering::SeqCst) >= STRUCK), "all strikes were made");
    calm.shutdown().await;
    struck.shutdown().await;
}
