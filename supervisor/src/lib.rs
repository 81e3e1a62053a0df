//! Supervision of actors: starts children in order, restarts what dies, gives up in time and says so.
//!
//! A [`SupervisorRef`] watches a list of [`ChildSpec`]s. Each start of a child is a new [`Incarnation`], run in a short-lived actor of
//! its own, so that a slow, panicking or hanging start delays nobody. An exit is judged by the child's [`RestartPolicy`], its
//! [`Intensity`] and its [`Backoff`]; a child that fails too often is marked down, or takes the supervisor with it ([`OnExhausted`]).
//! A child that holds a [`Progress`] is found stuck when work waits and nothing moves. An [`Observe`]r hears every
//! [`SupervisionEvent`] in order, before the next one is handled: a route can be taken out before its node starts again.
//!
//! This crate refuses to know what its children do: no models, no nodes, no requests. It starts no process-wide registry, and time is
//! tokio's, so tests pause it.
//!
//! ```
//! use mstar_supervisor::{Backoff, Intensity};
//! use std::time::Duration;
//!
//! let backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(1), jitter: 0.0, ..Backoff::default() };
//! assert_eq!(backoff.delay(0, 7), Duration::from_millis(100));
//! assert_eq!(backoff.delay(2, 7), Duration::from_millis(400));
//! assert_eq!(backoff.delay(9, 7), Duration::from_secs(1));
//! assert_eq!(Intensity::default().max_restarts, 5);
//! ```

mod backoff;
mod event;
mod handle;
mod health;
mod intensity;
mod messages;
mod spec;
mod starter;
mod supervisor;
mod ward;

pub use backoff::Backoff;
pub use event::{ExitReason, Observe, SupervisionEvent};
pub use handle::{SupervisorError, SupervisorRef};
pub use health::{Health, OnStuck, Progress, StuckReport};
pub use intensity::Intensity;
pub use messages::{ChildSnapshot, ChildState, Snapshot};
pub use spec::{
    ChildSpec, Incarnation, Ledger, OnExhausted, RestartPolicy, StartError, StartFuture, Strategy, SupervisorSpec,
};
