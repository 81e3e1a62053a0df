//! API keys: compared in constant time, by their digests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{ApiError, Gateway};

/// The keys that may call; with none, everybody may.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    /// Returns the set of these keys. Only their digests are kept.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|key| Sha256::digest(key).into()).collect())
    }

    /// Returns whether a key is needed.
    pub fn are_required(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns whether the key is one of them. Takes the same time whichever it is.
    pub fn admit(&self, key: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(key).into();
        self.0.iter().fold(subtle::Choice::from(0), |found, known| found | known.ct_eq(&digest)).into()
    }
}

/// Lets requests through that carry a key, or all when no key is configured.
pub(crate) async fn require_key(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    if !gateway.keys.are_required() {
        // Without keys the server is open to this machine, not to every page that its browser shows.
        let origin = request.headers().get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
        return match origin {
            Some(origin) if !is_local(origin) => {
                let message = format!("pages of {origin:?} may not call a server without API keys");
                ApiError::new(StatusCode::FORBIDDEN, "foreign_origin", message).at("Origin").into_response()
            }
            _ => next.run(request).await,
        };
    }
    let value = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let bearer = value.and_then(|v| v.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match bearer {
        Some((_, key)) if gateway.keys.admit(key.trim()) => next.run(request).await,
        Some(_) => unauthorized("the API key is not known here"),
        None => unauthorized("an API key is needed: send it as Authorization: Bearer KEY"),
    }
}

/// Returns whether a browser's origin is a page of this machine.
fn is_local(origin: &str) -> bool {
    let host = origin.split_once("://").map_or("", |(_, rest)| rest);
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn unauthorized(message: &str) -> Response {
    let mut response = ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_machines_are_foreign() {
        for local in ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443"] {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["http://evil.example", "null", "http://localhost.evil.example", "http://10.0.0.1", ""] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }

    #[test]
    fn only_known_keys_are_admitted() {
        let keys = ApiKeys::new(["alpha", "beta"]);
        assert!(keys.are_required() && keys.admit("alpha") && keys.admit("beta"));
        assert!(!keys.admit("") && !keys.admit("alph") && !keys.admit("alphaa"));
        assert!(!ApiKeys::default().are_required());
    }
}
