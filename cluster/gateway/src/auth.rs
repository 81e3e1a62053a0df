//! API keys: compared in constant time, by their digests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mstar_contract::Tenant;
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

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
        self.tenant(key) != Tenant::default()
    }

    /// Returns whom a key stands for; nobody in particular, when it is not one of them. Takes the same time whichever it
    /// is.
    pub fn tenant(&self, key: &str) -> Tenant {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = (1u64..).zip(&self.0);
        Tenant(known.fold(0, |found, (number, known)| u64::conditional_select(&found, &number, known.ct_eq(&digest))))
    }

    /// Returns whom a request's key stands for.
    pub(crate) fn tenant_of(&self, headers: &HeaderMap) -> Tenant {
        bearer(headers).map_or_else(Tenant::default, |key| self.tenant(key))
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
    match bearer(request.headers()) {
        Some(key) if gateway.keys.admit(key) => next.run(request).await,
        Some(_) => unauthorized("the API key is not known here"),
        None => unauthorized("an API key is needed: send it as Authorization: Bearer KEY"),
    }
}

/// Returns the key that a request carries.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
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

    #[test]
    fn every_key_stands_for_somebody_else() {
        let keys = ApiKeys::new(["alpha", "beta"]);
        let tenant =
            |header: &str| keys.tenant_of(&[(header::AUTHORIZATION, header.parse().unwrap())].into_iter().collect());
        let (alpha, beta) = (tenant("Bearer alpha"), tenant("bearer  beta"));
        assert!(alpha != beta && alpha != Tenant::default() && beta != Tenant::default());
        assert_eq!((tenant("Bearer gamma"), tenant("Basic alpha")), (Tenant::default(), Tenant::default()));
    }
}
