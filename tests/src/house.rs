//! A whole server in the test's process: ranks, nodes, ingress and gateway on a free port, serving scripted models.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mstar_config::{Deployment, Environment};
use mstar_engines::fake::{FakeComponent, FakeModel, FakeSettings};
use mstar_runtime::{Boot, Cluster, Server};
use mstar_weights::Cache;
use mstar_zoo::{Entry, Zoo};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::scribe::{self, Gate};

/// A running server with the models `fake` and `scribe`.
pub struct House {
    /// The cluster behind it.
    pub cluster: Cluster,
    /// Holds requests of `scribe` up until it is opened.
    pub gate: Arc<Gate>,
    server: Server,
    http: reqwest::Client,
}

/// What goes wrong ends the test.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long a house may take to become idle.
const IDLE_WITHIN: Duration = Duration::from_secs(60);
/// How often it is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

const DEPLOYMENT: &str = r#"
default_model = "fake"
[[rank]]
name = "cpu0"
threads = 1
[[rank]]
name = "gate"
threads = 1
[[placement]]
node = "scribe.door"
rank = "gate"
max_batch_rows = 1
[model.fake]
[model.scribe]
"#;

// --- impl House ---

impl House {
    /// Boots with these lines of a deployment file, e.g. a `[limits]` section, besides the usual.
    pub async fn boot(lines: &str) -> Outcome<Self> {
        Self::boot_with("", lines).await
    }

    /// Boots with these lines at the top of the deployment file, and these after it.
    pub async fn boot_with(top: &str, lines: &str) -> Outcome<Self> {
        let gate = Arc::new(Gate::default());
        let fake = Entry::new(FakeModel::new()?, FakeComponent::all(&FakeSettings::default()));
        let zoo = Zoo::new(vec![fake, scribe::entry(&gate)?])?;
        let text = format!("{top}{DEPLOYMENT}{lines}");
        Self::of(zoo, gate, &text, Environment::default()).await
    }

    /// Boots the project's own models with their real weights, as a deployment file says.
    pub async fn real(text: &str) -> Outcome<Self> {
        let cache = Some(Cache::in_target_dir().root().to_path_buf());
        let environment = Environment { cache, ..Environment::default() };
        Self::of(Zoo::standard()?, Arc::default(), text, environment).await
    }

    async fn of(zoo: Zoo, gate: Arc<Gate>, text: &str, environment: Environment) -> Outcome<Self> {
        let deployment = Deployment::parse("house.toml", text, &zoo.catalogue())?;
        let cluster = Cluster::boot(Boot { environment, ..Boot::new(deployment, zoo) }).await?;
        let listener = Server::reserve(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let server = Server::start(listener, &cluster)?;
        Ok(Self { cluster, gate, server, http: reqwest::Client::new() })
    }

    /// Stops everything.
    pub async fn close(self) {
        self.gate.open();
        self.server.close(Duration::from_secs(5)).await;
        self.cluster.shutdown().await;
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Begins a request to a path.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(self.url(path))
    }

    /// Gets a path.
    pub async fn get(&self, path: &str) -> Outcome<Response> {
        Ok(self.http.get(self.url(path)).send().await?)
    }

    /// Returns the client, for other methods.
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// Asks the native endpoint for a document.
    pub async fn generate(&self, fields: &[(&str, &str)]) -> Outcome<Response> {
        Ok(self.post("/generate").form(fields).send().await?)
    }

    /// Asks the default model to say a text again, and checks that it does.
    pub async fn works(&self) -> Outcome {
        let fields = [("text", "still here"), ("streaming", "false"), ("model_kwargs", r#"{"walk": "echo"}"#)];
        let document: Value = self.generate(&fields).await?.error_for_status()?.json().await?;
        // "still here" in base64.
        let expected = json!([{"data": "c3RpbGwgaGVyZQ==", "metadata": {}}]);
        if document["outputs"]["text"] != expected {
            return Err(format!("a good request got {document}").into());
        }
        Ok(())
    }

    /// Returns the cluster as its operators see it.
    pub async fn view(&self) -> Outcome<Value> {
        Ok(self.get("/admin/cluster").await?.error_for_status()?.json().await?)
    }

    /// Waits until the cluster's view is as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Outcome<Value> {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        let mut last = Value::Null;
        let waiting = async {
            loop {
                ticks.tick().await;
                last = self.view().await?;
                if wanted(&last) {
                    return Outcome::Ok(());
                }
            }
        };
        match tokio::time::timeout(IDLE_WITHIN, waiting).await {
            Ok(outcome) => outcome.map(|()| last),
            Err(_) => Err(format!("not {what} in time: {last:#}").into()),
        }
    }

    /// Waits until so many have attached to the running request of this id.
    pub async fn attached(&self, id: &str, count: usize) -> Outcome {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        let waiting = async {
            while self.cluster.gateway().running.attached(id) < count {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(IDLE_WITHIN, waiting).await?;
        Ok(())
    }

    /// Waits until nothing is left of any request: no walker, no step, no stream, no sequence, no KV page, no tensor, no
    /// byte of a body.
    pub async fn idle(&self) -> Outcome {
        self.until("idle", is_idle).await?;
        let mut ticks = tokio::time::interval(ASK_EVERY);
        let freed = async {
            while self.cluster.gateway().bodies.taken() > 0 {
                ticks.tick().await;
            }
        };
        tokio::time::timeout(IDLE_WITHIN, freed).await.map_err(|_| "bodies are still in memory")?;
        if !self.cluster.gateway().running.is_empty() {
            return Err("the gateway still counts a request".into());
        }
        Ok(())
    }
}

fn is_idle(view: &Value) -> bool {
    let zero = |value: &Value| value.as_u64() == Some(0);
    let requests = &view["requests"];
    let nodes = view["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ranks = view["ranks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let quiet = |node: &Value| {
        let queue = &node["queue"];
        ["steps", "queued", "streams", "buffered", "outgoing", "requests"].iter().all(|name| zero(&queue[*name]))
            && zero(&node["sequences"])
            && (node["kv"].is_null() || zero(&node["kv"]["pages_used"]))
    };
    requests["running"].as_array().is_some_and(Vec::is_empty)
        && zero(&requests["queued"])
        && !nodes.is_empty()
        && nodes.iter().all(quiet)
        && ranks.iter().all(|rank| zero(&rank["tensors"]["live"]) && zero(&rank["tensors"]["bytes"]))
}
