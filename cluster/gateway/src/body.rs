//! Reads request bodies within the deployment's limits: JSON, URL-encoded forms, multipart forms.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;

use crate::budget::Held;
use crate::fields::parse_json;
use crate::metered::{Fault, Metered};
use crate::{ApiError, Gateway};

/// A form as it came: plain fields by name, and uploads in order.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// The plain fields. A field that comes twice keeps all its values.
    pub fields: BTreeMap<String, Vec<String>>,
    /// The uploads.
    pub files: Vec<Upload>,
}

/// An uploaded file.
#[derive(Debug)]
pub(crate) struct Upload {
    /// The form field it came in.
    pub field: String,
    /// Its name at the client, only a hint.
    pub file_name: Option<String>,
    /// Its content type as the client says.
    pub content_type: Option<String>,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Most fields and files in one form.
const MAX_PARTS: usize = 64;

/// Reads a JSON body, and returns it with what it holds of the budget.
pub(crate) async fn read_json(request: Request, gateway: &Gateway) -> Result<(serde_json::Value, Arc<Held>), ApiError> {
    let kind = media_type(request.headers());
    if !(kind == "application/json" || kind.ends_with("+json")) {
        return Err(unsupported(&kind, "application/json"));
    }
    let (bytes, held) = metered(request, gateway, read_bytes).await?;
    Ok((parse_json(&bytes)?, held))
}

/// Reads a form, URL-encoded or multipart, and returns it with what it holds of the budget.
pub(crate) async fn read_form(request: Request, gateway: &Gateway) -> Result<(Form, Arc<Held>), ApiError> {
    match media_type(request.headers()).as_str() {
        "application/x-www-form-urlencoded" => {
            let (bytes, held) = metered(request, gateway, read_bytes).await?;
            Ok((read_pairs(&bytes)?, held))
        }
        "multipart/form-data" => metered(request, gateway, read_multipart).await,
        other => Err(unsupported(other, "multipart/form-data")),
    }
}

/// Reads a body that is bounded, counted against the budget, and must come in time.
async fn metered<T, R>(
    request: Request,
    gateway: &Gateway,
    read: impl FnOnce(Request) -> R,
) -> Result<(T, Arc<Held>), ApiError>
where
    R: Future<Output = Result<T, ApiError>>,
{
    let (limits, budget) = (&gateway.limits, &gateway.bodies);
    refuse_announced(request.headers(), gateway)?;
    let (head, body) = request.into_parts();
    let (body, meter) = Metered::new(body, limits, budget);
    let reading = read(Request::from_parts(head, Body::from_stream(body)));
    match tokio::time::timeout(limits.body_timeout, reading).await {
        Ok(Ok(read)) => Ok((read, meter.into_held())),
        Ok(Err(error)) => Err(meter.fault().map_or(error, |fault| fault.error(limits, budget))),
        Err(_) => Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "deadline", "did not come in time").at("body")),
    }
}

fn unsupported(given: &str, wanted: &str) -> ApiError {
    let message = format!("{given:?} is not taken here; send {wanted}");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message).at("content-type")
}

fn read_pairs(bytes: &[u8]) -> Result<Form, ApiError> {
    const UNREADABLE: char = char::REPLACEMENT_CHARACTER;
    let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(bytes)
        .map_err(|error| ApiError::body(format!("is not an URL-encoded form: {error}")))?;
    let mut form = Form::default();
    for (name, value) in pairs {
        // What is no UTF-8 comes out of the decoder as replacement characters.
        if name.contains(UNREADABLE) {
            return Err(ApiError::body("has a field whose name is not valid UTF-8"));
        }
        if value.contains(UNREADABLE) {
            return Err(ApiError::field(name, "is not valid UTF-8"));
        }
        form.fields.entry(name).or_default().push(value);
    }
    Ok(form)
}

async fn read_multipart(request: Request) -> Result<Form, ApiError> {
    let malformed = |error: MultipartError| ApiError::body(format!("is not a multipart form: {}", error.body_text()));
    let mut multipart = Multipart::from_request(request, &())
        .await
        .map_err(|error| ApiError::body(format!("is not a multipart form: {}", error.body_text())))?;
    let (mut form, mut parts) = (Form::default(), 0_usize);
    while let Some(mut part) = multipart.next_field().await.map_err(malformed)? {
        parts += 1;
        if parts > MAX_PARTS {
            return Err(ApiError::body(format!("has more than {MAX_PARTS} parts")));
        }
        let field = part.name().unwrap_or_default().to_owned();
        if field.is_empty() {
            return Err(ApiError::body("has a part without a name"));
        }
        let (file_name, content_type) = (part.file_name().map(str::to_owned), part.content_type().map(str::to_owned));
        let mut bytes = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(|error| malformed(error).at(field.clone()))? {
            bytes.extend_from_slice(&chunk);
        }
        if file_name.is_some() {
            // What it grew beyond its bytes is not counted.
            bytes.shrink_to_fit();
            form.files.push(Upload { field, file_name, content_type, bytes: bytes.into() });
        } else {
            let text = String::from_utf8(bytes).map_err(|_| ApiError::field(field.clone(), "is not valid UTF-8"))?;
            form.fields.entry(field).or_default().push(text);
        }
    }
    Ok(form)
}

async fn read_bytes(request: Request) -> Result<Bytes, ApiError> {
    let read = to_bytes(request.into_body(), usize::MAX).await;
    read.map_err(|error| ApiError::body(format!("could not be read: {error}")))
}

/// Refuses a body by its announced length, before it is read: it may be too large, or find no room now.
fn refuse_announced(headers: &HeaderMap, gateway: &Gateway) -> Result<(), ApiError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    let Some(length) = announced else { return Ok(()) };
    let (limits, budget) = (&gateway.limits, &gateway.bodies);
    let room = budget.total() - budget.taken();
    if length > limits.body_bytes as u64 {
        return Err(Fault::TooLarge.error(limits, budget));
    }
    if length > room as u64 { Err(Fault::Short.error(limits, budget)) } else { Ok(()) }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

// --- impl Form ---

impl Form {
    /// Returns a field that may come once.
    pub(crate) fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.fields.get(name).map(Vec::as_slice) {
            None | Some([]) => Ok(None),
            Some([value]) => Ok(Some(value)),
            Some(_) => Err(ApiError::field(name, "is given more than once")),
        }
    }

    /// Returns a field as a truth value.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.one(name)?.map(str::trim) {
            None | Some("") => Ok(None),
            Some("true" | "True" | "1") => Ok(Some(true)),
            Some("false" | "False" | "0") => Ok(Some(false)),
            Some(other) => Err(ApiError::field(name, format!("{other:?} is neither true nor false"))),
        }
    }

    /// Refuses fields and uploads under other names than these.
    pub(crate) fn refuse_unknown(&self, fields: &[&str], files: &[&str]) -> Result<(), ApiError> {
        let stranger = |name: &str, known: &[&str]| {
            let message = format!("unknown field; known here: {}", known.join(", "));
            ApiError { code: "unknown_field", ..ApiError::field(name, message) }
        };
        if let Some(name) = self.fields.keys().find(|name| !fields.contains(&name.as_str())) {
            return Err(stranger(name, fields));
        }
        match self.files.iter().find(|file| !files.contains(&file.field.as_str())) {
            Some(file) => Err(stranger(&file.field, files)),
            None => Ok(()),
        }
    }
}
