//! The one shape of error that clients see: a status and `{"error": {message, type, param, code}}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mstar_contract::{Failure, FailureKind, Invalid, RequestId, TraceContext};
use serde_json::json;

use crate::label::label;

/// An answer that is an error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{status}: {message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// What went wrong, for a person.
    pub message: String,
    /// The field at fault, as a path.
    pub param: Option<String>,
    /// A word for programs.
    pub code: &'static str,
    /// The request that failed and its trace, once there is a request.
    pub request: Option<Box<(RequestId, TraceContext)>>,
}

/// Returns the status that means that the client left or asked for the end. Mostly only logs see it.
pub(crate) fn client_gone() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

impl ApiError {
    /// Returns an error of this status and code.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code, request: None }
    }

    /// Names the field at fault.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.param = Some(field.into());
        self
    }

    /// Returns the complaint about a field's value.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message).at(field)
    }

    /// Returns the complaint about a body that cannot be read at all.
    pub fn body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_body", message).at("body")
    }

    /// Returns the error's JSON.
    pub fn json(&self) -> serde_json::Value {
        let kind = match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        };
        let message = match &self.param {
            Some(param) if !self.message.contains(param.as_str()) => format!("{param}: {}", self.message),
            _ => self.message.clone(),
        };
        json!({"error": {"message": message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let (status, code) = match failure.kind {
            FailureKind::Invalid => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_value"),
            FailureKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            FailureKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            FailureKind::Cancelled => (client_gone(), "cancelled"),
            FailureKind::Deadline => (StatusCode::REQUEST_TIMEOUT, "deadline"),
            FailureKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let mut error = Self::new(status, code, failure.message);
        error.param = failure.field;
        error
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Self::field(invalid.field, invalid.message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        if let Some(request) = &self.request {
            label(&mut response, &request.0, request.1);
        }
        response
    }
}
