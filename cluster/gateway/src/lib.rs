//! The HTTP endpoints: OpenAI-compatible, native, and for operations.
//!
//! Every request becomes a [`mstar_contract::Request`], is submitted to the ingress actor, and what its walker emits
//! is written to the client as it comes. This crate knows no model and no actor but the ingress; it never
//! tokenises, decodes media or computes.
//!
//! ```
//! use mstar_gateway::ApiError;
//! let error = ApiError::field("messages[0].role", "must be a string");
//! assert_eq!(error.status.as_u16(), 422);
//! assert_eq!(error.json()["error"]["param"], "messages[0].role");
//! ```

mod admin;
mod auth;
mod body;
mod budget;
mod call;
mod error;
mod fields;
mod fingerprint;
mod idempotency;
mod label;
mod metered;
mod native;
mod native_answer;
mod openai;
mod sampling;
mod state;
mod streamed;
mod wire;

pub use admin::ANSWERS;
pub use auth::ApiKeys;
pub use budget::BodyBudget;
pub use error::ApiError;
pub use idempotency::Running;
pub use state::{Gateway, Limits, Operations, Readiness, router};
