//! What every handler shares, and the table of routes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use mstar_actors::{IngressHandle, Served};
use mstar_graph::ModelId;
use tower_http::catch_panic::CatchPanicLayer;

use crate::idempotency::Running;
use crate::openai::{chat, models, speech, transcriptions};
use crate::{ApiError, ApiKeys, BodyBudget, admin, auth, native};

/// What every handler shares.
pub struct Gateway {
    /// The served models by id.
    pub models: BTreeMap<ModelId, Arc<Served>>,
    /// The model of a request that names none.
    pub default_model: ModelId,
    /// Where requests go.
    pub ingress: IngressHandle,
    /// Bounds on what clients may send.
    pub limits: Limits,
    /// The bytes of all requests together.
    pub bodies: BodyBudget,
    /// Who may call.
    pub keys: ApiKeys,
    /// The views and switches of the running cluster.
    pub operations: Arc<dyn Operations>,
    /// The requests that run; begin with the default.
    pub running: Running,
    /// Whether a request that comes without a trace begins one.
    pub begin_traces: bool,
}

/// Bounds on what clients may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a body.
    pub body_bytes: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a body may make no progress.
    pub body_stall: Duration,
    /// How long a client may take nothing of its answer.
    pub reader_stall: Duration,
    /// Most tokens a request may ask to sample.
    pub max_output_tokens: u32,
    /// How long a request may take.
    pub deadline: Duration,
    /// After how many seconds a refused client should come again.
    pub retry_after_s: u64,
}

/// The views and switches of the running cluster, given by whoever booted it.
pub trait Operations: Send + Sync {
    /// Returns whether every node of every served walk has a live replica.
    fn readiness(&self) -> Readiness;
    /// Returns ranks, nodes, incarnations, queues and KV use. Asks every node, each within a bound of time.
    fn cluster(&self) -> Pin<Box<dyn Future<Output = serde_json::Value> + Send + '_>>;
    /// Begins to drain: no new requests, running ones end. The process stays, until whoever started it ends it.
    fn drain(&self);
    /// Returns whether a drain has begun.
    fn draining(&self) -> bool;
    /// Returns the metrics in Prometheus' text format.
    fn metrics(&self) -> String;
}

/// Whether walks can be served.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// What stands in the way; ready when empty.
    pub problems: Vec<String>,
}

impl Gateway {
    /// Returns the served model of this name, or the default one.
    pub fn served(&self, model: Option<&str>) -> Result<&Arc<Served>, ApiError> {
        let id = model.map_or_else(|| self.default_model.clone(), ModelId::from);
        self.models.get(&id).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(|id| id.as_str()).collect();
            let message = format!("model {:?} is not served here; served: {}", id.as_str(), known.join(", "));
            ApiError::new(axum::http::StatusCode::NOT_FOUND, "model_not_found", message).at("model")
        })
    }
}

/// Returns the endpoints over a gateway.
pub fn router(gateway: Arc<Gateway>) -> Router {
    let work = Router::new()
        .route("/generate", post(native::generate))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/audio/speech", post(speech::speak))
        .route("/v1/audio/transcriptions", post(transcriptions::transcribe))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&gateway), admin::refuse_while_draining));
    let guarded = Router::new()
        .merge(work)
        .route("/v1/models", get(models::list))
        .route("/v1/models/{id}", get(models::one))
        .route("/v1/requests/{id}", delete(admin::cancel))
        .route("/metrics", get(admin::metrics))
        .route("/admin/cluster", get(admin::cluster))
        .route("/admin/requests/{id}", get(admin::request))
        .route("/admin/drain", post(admin::drain))
        .layer(middleware::from_fn_with_state(Arc::clone(&gateway), auth::require_key));
    Router::new()
        .route("/health", get(admin::health))
        .route("/healthz", get(admin::alive))
        .route("/readyz", get(admin::ready))
        .merge(guarded)
        .route_layer(middleware::from_fn(admin::count))
        .fallback(admin::no_such_route)
        .method_not_allowed_fallback(admin::wrong_method)
        // Bodies are bounded where they are read, with a complaint that names the limit.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::map_response_with_state(Arc::clone(&gateway), admin::say_when))
        .layer(CatchPanicLayer::custom(admin::panicked))
        .with_state(gateway)
}
