//! An engine that pretends to take time.

use std::time::Duration;

use mstar_contract::{Engine, EngineUsage, ExecuteCx, RequestKey, Row, RowProgress};

/// How long a batch pretends to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTime {
    /// However many rows.
    pub per_batch: Duration,
    /// For each row.
    pub per_row: Duration,
}

/// An engine, and the time that it pretends to take; with paused clocks tests run as fast as they can.
#[derive(Debug)]
pub struct Timed<E> {
    engine: E,
    service: ServiceTime,
    last: Duration,
}

// --- impl Timed ---

impl<E: Engine> Timed<E> {
    /// Makes an engine pretend.
    pub fn new(engine: E, service: ServiceTime) -> Self {
        Self { engine, service, last: Duration::ZERO }
    }
}

impl<E: Engine> Engine for Timed<E> {
    fn execute(&mut self, rows: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress> {
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.last = self.service.per_batch + self.service.per_row * count;
        self.engine.execute(rows, cx)
    }

    fn timed(&mut self, took: Duration) {
        self.engine.timed(took);
    }

    fn retire(&mut self, key: RequestKey) {
        self.engine.retire(key);
    }

    fn reset(&mut self) {
        self.engine.reset();
    }

    fn usage(&self) -> EngineUsage {
        self.engine.usage()
    }

    fn simulated(&self) -> Option<Duration> {
        (self.last > Duration::ZERO).then_some(self.last)
    }
}
