//! The headers that tell a client which request was its own: `x-request-id` and `traceparent`.

use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use mstar_contract::{RequestId, TraceContext};

/// Carries a request's id, from the client and back to it.
pub(crate) const REQUEST_ID: &str = "x-request-id";
const TRACEPARENT: &str = "traceparent";

/// Writes a request's id and trace into an answer's headers.
pub(crate) fn label(response: &mut Response, id: &RequestId, trace: TraceContext) {
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    if trace.is_present()
        && let Ok(value) = HeaderValue::from_str(&trace.to_string())
    {
        response.headers_mut().insert(TRACEPARENT, value);
    }
}

/// Returns the id that the client chose in a header.
pub(crate) fn chosen_id(headers: &HeaderMap) -> Option<String> {
    headers.get(REQUEST_ID).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns the trace that the client sent; without one, a trace is begun when `record` says so.
pub(crate) fn trace_of(headers: &HeaderMap, record: bool) -> TraceContext {
    let sent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    sent.unwrap_or(TraceContext { sampled: record, ..TraceContext::default() })
}
