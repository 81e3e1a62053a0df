//! Hands a request to the ingress and carries its stream of events to a response.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use mstar_actors::{ClientStream, Served, Submit};
use mstar_contract::{
    ClientEvent, Emission, Failure, FailureKind, Media, Message, Request, RequestId, Sampling, Summary, Task,
    TraceContext,
};
use mstar_graph::Modality;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{ApiError, Gateway};

/// A request as an endpoint read it.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The id that the client chose.
    pub id: Option<String>,
    /// Which endpoint's meaning it has.
    pub task: Task,
    /// The conversation.
    pub messages: Vec<Message>,
    /// Its uploads.
    pub media: Vec<Media>,
    /// Wanted outputs.
    pub outputs: BTreeSet<Modality>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// The seed, when given.
    pub seed: Option<u64>,
    /// Options for the model.
    pub options: BTreeMap<String, Value>,
}

/// A request on its way: its first event has come, so that early failures still have a status of their own.
pub struct Call {
    id: RequestId,
    stream: ClientStream,
    first: Option<ClientEvent>,
}

/// Longest request id that a client may choose, in bytes.
const MAX_ID_BYTES: usize = 128;

impl Wanted {
    fn into_request(self, served: &Served) -> Result<Request, ApiError> {
        if let Some(id) = &self.id {
            let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
            if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(fine) {
                let message = format!("must have 1 to {MAX_ID_BYTES} letters, digits, '-', '_', '.' or ':'");
                return Err(ApiError::field("request_id", message));
            }
        }
        let id: RequestId = self.id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()).into();
        let seed = self.seed.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        });
        Ok(Request {
            id,
            model: served.model.id(),
            task: self.task,
            messages: self.messages,
            media: self.media,
            outputs: self.outputs,
            sampling: self.sampling,
            seed,
            options: self.options,
        })
    }
}

// --- impl Call ---

impl Call {
    /// Submits a request and waits for its first event.
    pub async fn begin(
        gateway: &Gateway,
        served: &Arc<Served>,
        headers: &HeaderMap,
        wanted: Wanted,
    ) -> Result<Self, ApiError> {
        let request = Arc::new(wanted.into_request(served)?);
        let id = Arc::clone(&request.id);
        let submit =
            Submit { request, served: Arc::clone(served), deadline: Some(gateway.limits.deadline), trace: trace_of(headers) };
        let refused = |failure: Failure| {
            let mut error = ApiError::from(failure);
            error.retry_after_s = error.retry_after_s.map(|_| gateway.limits.retry_after_s);
            error
        };
        let mut stream = gateway.ingress.submit(submit).await.map_err(refused)?;
        match stream.next().await {
            Some(ClientEvent::Failed(failure)) => Err(refused(failure)),
            Some(event) => Ok(Self { id, stream, first: Some(event) }),
            None => Err(refused(lost())),
        }
    }

    /// Returns the id the client may know the request by.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the next event; after the last one the complaint that the stream broke.
    pub async fn next(&mut self) -> ClientEvent {
        match self.first.take() {
            Some(event) => event,
            None => self.stream.next().await.unwrap_or_else(|| ClientEvent::Failed(lost())),
        }
    }

    /// Collects the whole request.
    pub async fn collect(mut self) -> Result<(Vec<Emission>, Summary), ApiError> {
        let mut emissions = Vec::new();
        loop {
            match self.next().await {
                ClientEvent::Emitted(emission) => emissions.push(emission),
                ClientEvent::Done(summary) => return Ok((emissions, summary)),
                ClientEvent::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    /// Writes the headers that every answer carries: the request's id and its trace.
    pub fn label(&self, response: &mut Response) {
        label(response, &self.id, self.stream.trace());
    }

    /// Returns the trace that the request is recorded in.
    pub fn trace(&self) -> TraceContext {
        self.stream.trace()
    }
}

/// Writes a request's id and trace into an answer's headers.
pub fn label(response: &mut Response, id: &RequestId, trace: TraceContext) {
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert("x-request-id", value);
    }
    if trace.is_present()
        && let Ok(value) = HeaderValue::from_str(&trace.to_string())
    {
        response.headers_mut().insert("traceparent", value);
    }
}

fn lost() -> Failure {
    Failure::new(FailureKind::Internal, "the request ended without a result")
}

/// Returns the trace context that the client sent, if it sent one.
pub fn trace_of(headers: &HeaderMap) -> TraceContext {
    headers.get("traceparent").and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or_default()
}

// --- streamed bodies ---

/// Pieces of a body that is written while a request runs.
pub struct Pieces(mpsc::Receiver<Result<Bytes, Broken>>);

/// Where a streamed body is written to. A client that is gone makes `send` return false.
pub struct BodyWriter(mpsc::Sender<Result<Bytes, Broken>>);

/// The stream was broken off on purpose, so that a client notices even if it ignores the error event.
#[derive(Debug, thiserror::Error)]
#[error("the request failed after the answer had begun")]
pub struct Broken;

/// Pieces that may wait for a slow client. The walker's credit bounds what stands behind them.
const PIECES: usize = 4;

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

impl BodyWriter {
    /// Writes a piece; false when the client is gone.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.0.send(Ok(piece.into())).await.is_ok()
    }

    /// Breaks the body off.
    pub async fn abort(self) {
        // The client may be gone already: then there is nobody to tell.
        let _ = self.0.send(Err(Broken)).await;
    }

    /// Waits until the client is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Returns a response whose body `write` produces in a task of its own. The task ends with the body.
pub fn streamed<F, W>(content_type: &'static str, write: W) -> Response
where
    F: Future<Output = ()> + Send + 'static,
    W: FnOnce(BodyWriter) -> F,
{
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::spawn(write(BodyWriter(sender)));
    let mut response = Response::new(Body::from_stream(Pieces(receiver)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Returns a server-sent event with this data.
pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The end of an OpenAI event stream that went well.
pub const DONE_EVENT: &str = "data: [DONE]\n\n";

