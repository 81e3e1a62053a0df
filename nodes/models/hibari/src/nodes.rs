//! The three nodes: a file each.

mod acoustic;
mod cutter;
mod vocoder;

pub use acoustic::AcousticNode;
pub use cutter::CutterNode;
pub use vocoder::VocoderNode;

use std::collections::BTreeMap;

use mstar_contract::{In, LoadError, RequestKey, Row, RowError, RowOutput, Value};

use crate::HibariError;

/// The weight package of those that have weights.
const PACKAGE: &str = "hibari";

/// What a node keeps for its requests: one state per sequence of a request.
#[derive(Debug)]
struct PerRequest<S>(BTreeMap<(RequestKey, u8), S>);

// --- impl PerRequest ---

impl<S: Clone + Default> PerRequest<S> {
    /// Answers a batch, each row from what is kept for it. What rows change is kept once all of them are answered: should
    /// one panic, the engine asks for the others again, and they find everything as it was. A row that fails changes
    /// nothing: its request ends.
    fn run(
        &mut self,
        rows: &[Row],
        mut answer: impl FnMut(&mut S, &Row) -> Result<RowOutput, RowError>,
    ) -> Vec<Result<RowOutput, RowError>> {
        let mut changed: BTreeMap<(RequestKey, u8), S> = BTreeMap::new();
        let mut results = Vec::with_capacity(rows.len());
        for row in rows {
            let key = (row.key, row.params.label);
            let mut state = changed.get(&key).or_else(|| self.0.get(&key)).cloned().unwrap_or_default();
            let result = answer(&mut state, row);
            if result.is_ok() {
                changed.insert(key, state);
            }
            results.push(result);
        }
        self.0.extend(changed);
        results
    }
}

impl<S> PerRequest<S> {
    /// Forgets a request's attempt and all earlier ones.
    fn retire(&mut self, key: RequestKey) {
        self.0.retain(|(held, _), _| held.id != key.id || held.attempt > key.attempt);
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use mstar_contract::{Request, Task};

    use super::*;

    fn row(id: u64, attempt: u32) -> Row {
        let request = Arc::new(Request::new("r", "hibari", Task::Speak));
        Row { key: RequestKey { id, attempt }, ..Row::new(request, []) }
    }

    #[test]
    fn a_row_that_panics_leaves_what_is_kept_for_the_others_as_it_was() {
        let mut held: PerRequest<u32> = PerRequest::default();
        let rows = [row(1, 0), row(2, 0)];
        let count = |panics: bool| {
            move |state: &mut u32, row: &Row| {
                assert!(!panics || row.key.id != 2, "the second row panics");
                *state += 1;
                Ok(RowOutput::default())
            }
        };
        assert!(catch_unwind(AssertUnwindSafe(|| held.run(&rows, count(true)))).is_err());
        assert!(held.0.is_empty());
        held.run(&rows[..1], count(false));
        held.run(&rows, count(false));
        assert_eq!(held.0.values().copied().collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn an_attempt_is_forgotten_with_those_before_it() {
        let mut held: PerRequest<u32> = PerRequest::default();
        held.run(&[row(1, 0), row(1, 1), row(1, 2), row(2, 0)], |_, _| Ok(RowOutput::default()));
        assert_eq!(held.held(), 4);
        held.retire(RequestKey { id: 1, attempt: 1 });
        let keys: Vec<(u64, u32)> = held.0.keys().map(|(key, _)| (key.id, key.attempt)).collect();
        assert_eq!(keys, [(1, 2), (2, 0)]);
    }
}
