//! The endpoints for operations: health, metrics, views, cancel, drain.

use std::any::Any;
use std::sync::Arc;

use axum::Json;
use axum::extract::{MatchedPath, Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mstar_actors::WalkerPosition;
use serde_json::{Value, json};

use crate::{ApiError, Gateway};

/// Answers, by endpoint and status.
pub const ANSWERS: &str = "mstar_http_answers_total";

/// Counts answers. An answer that streams is counted when it begins.
pub(crate) async fn count(path: MatchedPath, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    let (path, status) = (path.as_str().to_owned(), answer.status().as_u16().to_string());
    metrics::counter!(ANSWERS, "endpoint" => path, "status" => status).increment(1);
    answer
}

/// Tells whoever is refused for now when to come again.
pub(crate) async fn say_when(State(gateway): State<Arc<Gateway>>, mut answer: Response) -> Response {
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, gateway.limits.retry_after_s.into());
    }
    answer
}

/// Refuses new requests before they are read, once a drain has begun, and lets their connections go.
pub(crate) async fn refuse_while_draining(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
    next: Next,
) -> Response {
    if !gateway.operations.draining() {
        return next.run(request).await;
    }
    let refused = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "the server is draining");
    ([(header::CONNECTION, "close")], refused).into_response()
}

/// `GET /healthz`: the process lives.
pub(crate) async fn alive() -> Json<Value> {
    Json(json!({"status": "alive"}))
}

/// `GET /health`: healthy when every node of every served walk has a live replica.
pub(crate) async fn health(State(gateway): State<Arc<Gateway>>) -> Response {
    readiness(&gateway, "healthy", "unhealthy")
}

/// `GET /readyz`: walks can be served.
pub(crate) async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    readiness(&gateway, "ready", "not ready")
}

fn readiness(gateway: &Gateway, good: &str, bad: &str) -> Response {
    let problems = gateway.operations.readiness().problems;
    if problems.is_empty() {
        return Json(json!({"status": good})).into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": bad, "problems": problems}))).into_response()
}

/// `GET /metrics`: Prometheus text.
pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], gateway.operations.metrics()).into_response()
}

/// `GET /admin/cluster`: ranks, nodes, incarnations, queues, KV use.
pub(crate) async fn cluster(State(gateway): State<Arc<Gateway>>) -> Json<Value> {
    Json(gateway.operations.cluster().await)
}

/// `GET /admin/requests/{id}`: where a request's walker stands.
pub(crate) async fn request(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    if !gateway.running.has(&id) {
        return Err(no_such_request(&id));
    }
    let position = gateway.ingress.position(&id.as_str().into()).await?;
    let state = if position.is_some() { "running" } else { "queued" };
    Ok(Json(json!({"id": id, "state": state, "position": position.map(|at| describe(&at))})).into_response())
}

/// `DELETE /v1/requests/{id}`: cancels a running request.
pub(crate) async fn cancel(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    if !gateway.running.has(&id) {
        return Err(no_such_request(&id));
    }
    gateway.ingress.cancel(&id.as_str().into());
    Ok(Json(json!({"id": id, "cancelled": true})).into_response())
}

fn describe(at: &WalkerPosition) -> Value {
    let partitions: Vec<Value> = at
        .partitions
        .iter()
        .map(|partition| {
            let loops: Vec<Value> = partition
                .loops
                .iter()
                .map(|(name, iteration)| json!({"loop": name.as_str(), "iteration": iteration}))
                .collect();
            let steps: Vec<Value> =
                partition.steps.iter().map(|(step, node)| json!({"step": step.as_str(), "node": node})).collect();
            json!({
                "partition": partition.partition.as_str(), "walk": partition.walk.as_str(), "loops": loops, "steps": steps,
            })
        })
        .collect();
    json!({"attempt": at.key.attempt, "partitions": partitions, "emissions_held": at.held})
}

/// `POST /admin/drain`: no new requests; running ones end. The process stays, so that its operators can look at it and
/// whoever started it does not start another; SIGTERM ends it.
pub(crate) async fn drain(State(gateway): State<Arc<Gateway>>) -> Json<Value> {
    gateway.operations.drain();
    Json(json!({"status": "draining"}))
}

fn no_such_request(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "request_not_found", format!("no request {id:?} is running")).at("id")
}

/// Answers a path that is not served.
pub(crate) async fn no_such_route(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no_such_endpoint",
        format!("{} is not an endpoint of this server", uri.path()),
    )
    .at("path")
}

/// Answers a method that a path does not take.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message).at("method")
}

/// Answers after a handler panicked; the server goes on.
pub(crate) fn panicked(_panic: Box<dyn Any + Send>) -> Response {
    tracing::error!("a request handler panicked");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server made a mistake").into_response()
}
