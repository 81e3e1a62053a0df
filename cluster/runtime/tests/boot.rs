//! A deployment of the scripted model, booted and asked over its endpoints.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use mstar_config::Deployment;
use mstar_contract::{
    Component, Invalid, LoadCx, LoadError, Loaded, Model, ModelCard, NextWalk, OpDecl, Plan, Recovery, Value,
    WeightSource,
};
use mstar_engines::fake::{FakeComponent, FakeSettings};
use mstar_gateway::router;
use mstar_graph::{ComponentId, Graph, GraphBuilder, Modality, ModelId, step};
use mstar_runtime::{Boot, BootError, Cluster, Drained};
use mstar_zoo::{Entry, Zoo};
use serde_json::Value as Json;
use tower::ServiceExt as _;

async fn boot(text: &str, zoo: Zoo) -> Result<Cluster, BootError> {
    let deployment = Deployment::parse("test.toml", text, &zoo.catalogue()).unwrap();
    Cluster::boot(Boot::new(deployment, zoo)).await
}

async fn call(cluster: &Cluster, method: &str, path: &str, body: &str) -> (StatusCode, String) {
    let kind = if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router(Arc::clone(cluster.gateway())).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn echo(cluster: &Cluster, model: &str) -> (StatusCode, Json) {
    let form = format!("text=hello&model={model}&streaming=false&model_kwargs=%7B%22walk%22%3A%22echo%22%7D");
    let (status, body) = call(cluster, "POST", "/generate", &form).await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn a_booted_cluster_answers_and_then_drains() {
    let cluster = boot("[model.fake]\n[limits]\ndrain_s = 5\n", Zoo::with_fake().unwrap()).await.unwrap();
    assert_eq!(call(&cluster, "GET", "/readyz", "").await.0, StatusCode::OK);

    let (status, answer) = echo(&cluster, "fake").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["outputs"]["text"][0]["data"], "aGVsbG8=");

    let (_, view) = call(&cluster, "GET", "/admin/cluster", "").await;
    let view: Json = serde_json::from_str(&view).unwrap();
    let nodes = view["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert!(nodes.iter().all(|node| node["state"] == "running" && node["incarnation"] == 1), "{view:#}");
    assert_eq!(view["requests"]["admitted"], 1);
    assert_eq!(view["ranks"][0]["tensors"]["live"], 0);

    let (_, metrics) = call(&cluster, "GET", "/metrics", "").await;
    for name in [
        "mstar_requests_total",
        "mstar_first_output_seconds_bucket",
        "mstar_batch_rows_bucket",
        "mstar_node_up",
        "mstar_tensor_bytes",
    ] {
        assert!(metrics.contains(name), "{name} is missing in {metrics}");
    }

    assert_eq!(cluster.drain(|_| {}).await, Drained::Clean);
    let (status, body) = call(&cluster, "GET", "/readyz", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("the server drains"), "{body}");
    assert_eq!(echo(&cluster, "fake").await.0, StatusCode::SERVICE_UNAVAILABLE);
    cluster.shutdown().await;
}

#[tokio::test]
async fn walks_that_are_not_served_are_refused() {
    let cluster = boot("[model.fake]\nwalks = ['chat']\n", Zoo::with_fake().unwrap()).await.unwrap();
    let (status, answer) = echo(&cluster, "fake").await;
    assert!(status.is_client_error(), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("served here: chat"), "{answer}");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_gpu_that_is_not_there_ends_the_boot_with_one_line() {
    let text = "[model.fake]\n[[rank]]\nname = 'gpu'\ndevice = 'cuda:7'\n";
    let error = boot(text, Zoo::with_fake().unwrap()).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("rank gpu wants cuda:7: ") && error.lines().count() == 1, "{error}");
}

#[tokio::test]
async fn a_request_that_names_no_bound_gets_the_deployments_if_it_is_lower() {
    let cluster = boot("[model.fake]\n[limits]\nmax_output_tokens = 3\n", Zoo::with_fake().unwrap()).await.unwrap();
    let chat = r#"{"model": "fake", "temperature": 0, "messages": [{"role": "user", "content": "go on and on"}]}"#;
    let (status, body) = call(&cluster, "POST", "/v1/chat/completions", chat).await;
    let answer: Json = serde_json::from_str(&body).unwrap();
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 3, "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    cluster.shutdown().await;
}

/// Waits until the server says that it is not ready for this reason.
async fn until_unready(cluster: &Cluster, reason: &str) {
    let told = async {
        loop {
            let (status, body) = call(cluster, "GET", "/readyz", "").await;
            if status == StatusCode::SERVICE_UNAVAILABLE && body.contains(reason) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.unwrap_or_else(|_| panic!("nobody says {reason:?}"));
}

#[tokio::test]
async fn a_server_whose_ingress_is_away_is_not_ready() {
    for (supervision, reason) in [
        ("backoff_min_ms = 60000\nbackoff_max_ms = 60000", "the ingress starts"),
        ("max_restarts = 0", "the ingress is down"),
    ] {
        let text = format!("[model.fake]\n[supervision]\n{supervision}\n");
        let cluster = boot(&text, Zoo::with_fake().unwrap()).await.unwrap();
        assert_eq!(call(&cluster, "GET", "/readyz", "").await.0, StatusCode::OK);
        cluster.routes().ingress().unwrap().kill();
        until_unready(&cluster, reason).await;
        assert_eq!(echo(&cluster, "fake").await.0, StatusCode::SERVICE_UNAVAILABLE);
        cluster.shutdown().await;
    }
}

/// Counts how often a component is loaded.
struct Counted {
    inner: Arc<dyn Component>,
    loads: Arc<AtomicUsize>,
}

impl Component for Counted {
    fn id(&self) -> ComponentId {
        self.inner.id()
    }
    fn ops(&self) -> Vec<OpDecl> {
        self.inner.ops()
    }
    fn recovery(&self) -> Recovery {
        self.inner.recovery()
    }
    fn weights(&self) -> WeightSource {
        self.inner.weights()
    }
    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.inner.load(cx)
    }
}

/// A model that echoes, by the component `fake.text`.
struct Echo {
    id: &'static str,
    graph: Arc<Graph>,
}

/// Its plan.
struct EchoPlan(Value);

impl Echo {
    fn new(id: &'static str) -> Self {
        let mut graph = GraphBuilder::new();
        let echo = step("text", "echo").input("in").client("out", Modality::Text);
        graph.node("text", "fake.text").partition("main").walk("main", "echo", echo);
        Self { id, graph: graph.build().unwrap() }
    }
}

impl Model for Echo {
    fn id(&self) -> ModelId {
        self.id.into()
    }
    fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }
    fn card(&self) -> ModelCard {
        let inputs = vec![Modality::Text];
        ModelCard { outputs: inputs.clone(), inputs, options: vec!["walk".to_owned()], ..ModelCard::default() }
    }
    fn plan(&self, request: &Arc<mstar_contract::Request>) -> Result<Box<dyn Plan>, Invalid> {
        let text = request.last_text().ok_or_else(|| Invalid::new("text", "nothing to echo"))?;
        Ok(Box::new(EchoPlan(Value::text(text))))
    }
}

impl Plan for EchoPlan {
    fn begin(&self) -> Vec<NextWalk> {
        vec![NextWalk::new("main", "echo").input("in", self.0.clone())]
    }
}

#[tokio::test]
async fn a_component_that_two_models_name_is_loaded_once() {
    let loads = Arc::new(AtomicUsize::new(0));
    let all = FakeComponent::all(&FakeSettings::default()).into_iter();
    let text = all.filter(|component| component.id() == "fake.text").map(|inner| {
        let counted: Arc<dyn Component> = Arc::new(Counted { inner, loads: Arc::clone(&loads) });
        counted
    });
    let entries = vec![Entry::new(Echo::new("one"), text.collect()), Entry::new(Echo::new("other"), vec![])];
    let cluster = boot("[model.one]\n[model.other]\n", Zoo::new(entries).unwrap()).await.unwrap();
    for model in ["one", "other"] {
        let (status, answer) = echo(&cluster, model).await;
        assert_eq!((status, &answer["outputs"]["text"][0]["data"]), (StatusCode::OK, &Json::from("aGVsbG8=")));
    }
    assert_eq!((loads.load(Ordering::SeqCst), cluster.table().nodes.len()), (1, 1));
    cluster.shutdown().await;
}
