//! The engine around [`Compute`]: batches go in, and a row that panics takes nobody with it.

use mstar_contract::{Compute, ComputeCx, Engine, EngineUsage, ExecuteCx, RequestKey, Row, RowError, RowProgress};
use mstar_graph::OpName;

use crate::isolate::guard;

/// Runs a component without KV.
///
/// A batch that panics is run again row by row; a row that panics alone twice fails, and what the component keeps for
/// its request is forgotten. An op that keeps state must therefore change it only when it can no longer panic.
pub struct StatelessEngine {
    compute: Box<dyn Compute>,
}

// --- impl StatelessEngine ---

impl StatelessEngine {
    /// Returns an engine around a component's compute.
    pub fn new(compute: Box<dyn Compute>) -> Self {
        Self { compute }
    }

    fn alone(&mut self, op: &OpName, row: Row, cx: &ComputeCx<'_>) -> RowProgress {
        let rows = [row];
        let once = guard(|| self.compute.run(op, &rows, cx));
        let twice = once.or_else(|_| guard(|| self.compute.run(op, &rows, cx)));
        let [row] = rows;
        let result = match twice {
            Ok(mut results) if results.len() == 1 => results.remove(0),
            Ok(results) => Err(miscounted(op, results.len(), 1)),
            Err(panic) => {
                self.forget(row.key);
                Err(RowError::Panicked(panic))
            }
        };
        RowProgress::Done(row.work, result)
    }

    fn forget(&mut self, key: RequestKey) {
        // Should forgetting panic too, there is nothing left to try.
        let _ = guard(|| self.compute.retire(key));
    }
}

impl Engine for StatelessEngine {
    fn execute(&mut self, rows: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress> {
        let Some(op) = rows.first().map(|row| row.op.clone()) else { return Vec::new() };
        let op = &op;
        let cx = ComputeCx { cx: cx.cx, gauge: cx.gauge, yields: cx.yields };
        let Ok(results) = guard(|| self.compute.run(op, &rows, &cx)) else {
            return rows.into_iter().map(|row| self.alone(op, row, &cx)).collect();
        };
        if results.len() != rows.len() {
            let failed = |row: &Row| RowProgress::Done(row.work, Err(miscounted(op, results.len(), rows.len())));
            return rows.iter().map(failed).collect();
        }
        rows.iter().zip(results).map(|(row, result)| RowProgress::Done(row.work, result)).collect()
    }

    fn retire(&mut self, key: RequestKey) {
        self.compute.retire(key);
    }

    fn reset(&mut self) {
        self.compute.reset();
    }

    fn usage(&self) -> EngineUsage {
        EngineUsage { sequences: self.compute.held(), ..EngineUsage::default() }
    }
}

fn miscounted(op: &OpName, results: usize, rows: usize) -> RowError {
    RowError::Internal(format!("op {op} gave {results} results for {rows} rows"))
}

#[cfg(test)]
mod tests;
