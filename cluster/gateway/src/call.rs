//! Hands a request to the ingress and carries its stream of events.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use mstar_actors::{ClientStream, Served, Submit};
use mstar_contract::{
    ClientEvent, Emission, Failure, FailureKind, Media, Message, Request, RequestId, Sampling, Summary, Task, Tenant,
    TraceContext,
};
use mstar_graph::Modality;
use serde_json::Value;

use crate::budget::{Held, counted};
use crate::error::client_gone;
use crate::idempotency::Entry;
use crate::label::{label, trace_of};
use crate::{ApiError, Gateway};

/// A request as an endpoint read it.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
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
    /// What precedes an option's name in the request; models call all of them `model_kwargs`.
    pub options_at: &'static str,
    /// What its body holds of the budget, until the request is over and its media are freed.
    pub body: Option<Arc<Held>>,
}

/// A request on its way: its first event has come, so that early failures still have a status of their own.
/// Dropped before its end, it is cancelled.
pub(crate) struct Call {
    id: RequestId,
    stream: ClientStream,
    first: Option<ClientEvent>,
    over: bool,
    _entry: Entry,
    _body: Option<Arc<Held>>,
}

/// Longest request id that a client may choose, in bytes.
const MAX_ID_BYTES: usize = 128;

// --- impl Wanted ---

impl Wanted {
    /// Returns the request's id: the client's when it chose one.
    fn id(&self) -> Result<RequestId, ApiError> {
        let Some(id) = &self.id else { return Ok(uuid::Uuid::new_v4().to_string().into()) };
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(fine) {
            let message = format!("must have 1 to {MAX_ID_BYTES} letters, digits, '-', '_', '.' or ':'");
            return Err(ApiError::field("request_id", message));
        }
        Ok(id.as_str().into())
    }

    fn into_request(mut self, id: RequestId, tenant: Tenant, served: &Served) -> Request {
        if let Some(body) = &self.body {
            self.media.iter_mut().for_each(|media| media.bytes = counted(std::mem::take(&mut media.bytes), body));
        }
        let seed = self.seed.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish()
        });
        Request {
            id,
            tenant,
            model: served.model().id(),
            task: self.task,
            messages: self.messages,
            media: self.media,
            outputs: self.outputs,
            sampling: self.sampling,
            seed,
            options: self.options,
        }
    }
}

// --- impl Call ---

impl Call {
    /// Submits a request and waits for its first event.
    pub(crate) async fn begin(
        gateway: &Gateway,
        served: &Arc<Served>,
        headers: &HeaderMap,
        wanted: Wanted,
    ) -> Result<Self, ApiError> {
        let id = wanted.id()?;
        let Some(entry) = gateway.running.enter(&id) else { return Err(in_use(&id)) };
        let trace = trace_of(headers, gateway.begin_traces);
        let options_at = wanted.options_at;
        let refused = |failure: Failure, trace: TraceContext| {
            let mut error = ApiError::from(failure);
            if let Some(option) = error.param.as_deref().and_then(|param| param.strip_prefix("model_kwargs.")) {
                error.param = Some(format!("{options_at}{option}"));
            }
            error.request = Some(Box::new((Arc::clone(&id), trace)));
            error
        };
        let body = wanted.body.clone();
        let request = Arc::new(wanted.into_request(Arc::clone(&id), gateway.keys.tenant_of(headers), served));
        let submit = Submit { request, served: Arc::clone(served), deadline: Some(gateway.limits.deadline), trace };
        let stream = gateway.ingress.submit(submit).await.map_err(|failure| match is_duplicate(&failure) {
            // Its client has left, but it has not ended yet.
            true => in_use(&id),
            false => refused(failure, trace),
        })?;
        let mut call = Self { id: Arc::clone(&id), stream, first: None, over: false, _entry: entry, _body: body };
        match call.next().await {
            ClientEvent::Failed(failure) => Err(refused(failure, call.trace())),
            event => {
                call.first = Some(event);
                Ok(call)
            }
        }
    }

    /// Returns the id the client may know the request by.
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the trace that the request is recorded in.
    pub(crate) fn trace(&self) -> TraceContext {
        self.stream.trace()
    }

    /// Returns the next event; after the last one the complaint that the stream broke.
    pub(crate) async fn next(&mut self) -> ClientEvent {
        let event = match self.first.take() {
            Some(event) => event,
            None => self.stream.next().await.unwrap_or_else(|| ClientEvent::Failed(lost())),
        };
        self.over |= !matches!(event, ClientEvent::Emitted(_));
        event
    }

    /// Collects the whole request.
    pub(crate) async fn collect(mut self) -> Result<(Vec<Emission>, Summary), ApiError> {
        let mut emissions = Vec::new();
        loop {
            match self.next().await {
                ClientEvent::Emitted(emission) => emissions.push(emission),
                ClientEvent::Done(summary) => return Ok((emissions, summary)),
                ClientEvent::Failed(failure) => return Err(self.error(failure)),
            }
        }
    }

    /// Returns the error that the request ends with.
    pub(crate) fn error(&self, failure: Failure) -> ApiError {
        ApiError { request: Some(Box::new((Arc::clone(&self.id), self.trace()))), ..ApiError::from(failure) }
    }

    /// Returns what writes the headers that every answer carries: the request's id and its trace.
    pub(crate) fn labels(&self) -> impl Fn(Response) -> Response + use<> {
        let (id, trace) = (Arc::clone(&self.id), self.trace());
        move |mut response| {
            label(&mut response, &id, trace);
            response
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            tracing::info!(request.id = &*self.id, status = client_gone().as_u16(), "the client left");
        }
    }
}

fn in_use(id: &RequestId) -> ApiError {
    let message = format!("request_id {id:?} is that of a request that is running");
    ApiError::new(StatusCode::CONFLICT, "request_id_in_use", message).at("request_id")
}

/// Returns whether the ingress refused a request because it serves one of the same id.
fn is_duplicate(failure: &Failure) -> bool {
    failure.kind == FailureKind::Invalid && failure.field.as_deref() == Some("request_id")
}

fn lost() -> Failure {
    Failure::new(FailureKind::Internal, "the request ended without a result")
}
