//! The three nodes: a file each.

mod acoustic;
mod cutter;
mod vocoder;

pub use acoustic::AcousticNode;
pub use cutter::CutterNode;
pub use vocoder::VocoderNode;

use std::collections::BTreeMap;

use mstar_contract::{In, LoadError, RequestKey, Row, RowError, Value};

use crate::HibariError;

/// The weight package of those that have weights.
const PACKAGE: &str = "hibari";

/// What a node keeps for its requests: one state per sequence of a request.
#[derive(Debug)]
struct PerRequest<S>(BTreeMap<(RequestKey, u8), S>);

// --- impl PerRequest ---

impl<S: Default> PerRequest<S> {
    fn of(&mut self, row: &Row) -> &mut S {
        self.0.entry((row.key, row.params.label)).or_default()
    }
}

impl<S> PerRequest<S> {
    fn retire(&mut self, key: RequestKey) {
        self.0.retain(|(held, _), _| *held != key);
    }

    fn held(&self) -> usize {
        let mut keys: Vec<RequestKey> = self.0.keys().map(|(key, _)| *key).collect();
        keys.dedup();
        keys.len()
    }
}

impl<S> Default for PerRequest<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

// --- what arrives ---

/// What arrived at a port that takes a stream or one value: the new values, where the first stands, and whether no
/// more will come.
fn arrived<'a>(row: &'a Row, port: &str) -> Result<(&'a [Value], u64, bool), RowError> {
    match row.input(port) {
        Some(In::One(value)) => Ok((std::slice::from_ref(value), 0, true)),
        Some(In::All(values)) => Ok((values, 0, true)),
        Some(In::Chunk(chunk)) => {
            let context = chunk.context.min(chunk.items.len());
            Ok((&chunk.items[context..], chunk.start + context as u64, chunk.last))
        }
        _ => Err(RowError::Internal(format!("input {port} is missing"))),
    }
}

fn text_of(value: &Value) -> Result<&str, RowError> {
    value.as_text().ok_or_else(|| RowError::Internal("an item is not text".into()))
}

// --- errors ---

/// Turns what went wrong while a component loaded into its error, causes and all.
fn broken(component: &'static str) -> impl Fn(HibariError) -> LoadError {
    move |error| LoadError { component: component.into(), message: told(&error) }
}

impl From<HibariError> for RowError {
    fn from(error: HibariError) -> Self {
        Self::Internal(told(&error))
    }
}

fn told(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
