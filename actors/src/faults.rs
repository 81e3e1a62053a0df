//! Points at which a test may make an actor fail.

use std::sync::Arc;

/// Decides whether an actor fails at a point it comes by. Asked on every pass, so it must be quick.
pub trait Faults: Send + Sync {
    /// Returns why the actor panics now, if it does. `actor` is a node's name, or a request's id.
    fn strike(&self, point: &'static str, actor: &str) -> Option<String>;
}

/// No actor fails on purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

/// Before a batch goes to the rank.
pub const BEFORE_EXECUTE: &str = "node:before_execute";
/// When a batch has come back.
pub const AFTER_EXECUTE: &str = "node:after_execute";
/// When items of a stream arrive.
pub const ON_ITEMS: &str = "node:on_items";
/// When a walker has handed something to its client.
pub const AFTER_EMIT: &str = "walker:after_emit";

impl Faults for NoFaults {
    fn strike(&self, _: &'static str, _: &str) -> Option<String> {
        None
    }
}

/// Passes a point, or panics there.
pub(crate) fn pass(faults: &Arc<dyn Faults>, point: &'static str, actor: &str) {
    if let Some(why) = faults.strike(point, actor) {
        panic!("{why} at {point} of {actor}");
    }
}
