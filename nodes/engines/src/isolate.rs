//! Panics of author code, kept from spreading.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` and turns a panic into its message. What `work` changed halfway is the caller's to judge.
pub(crate) fn guard<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| message(&*payload))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
