//! The engines of a rank and how a command is carried out: the same for the compute thread and the simulation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mstar_contract::{Engine, EngineUsage, ExecuteCx, Room, Row, RowProgress};
use mstar_supervisor::Incarnation;
use tokio::time::Instant;

use crate::device::{DeviceError, DeviceSpec, Install};
use crate::ids::IdMap;
use crate::messages::{Batch, DeviceCommand, Executed, NodeIx, NodeMsg};

/// A rank's engines.
pub(crate) struct Bench {
    pub(crate) spec: DeviceSpec,
    engines: IdMap<NodeIx, Box<dyn Engine>>,
    /// The latest life of each node that was heard of.
    lives: IdMap<NodeIx, Incarnation>,
}

/// The rows of a batch, sorted by whether they run now.
#[derive(Default)]
struct Sorted {
    run: Vec<Row>,
    answered: Vec<RowProgress>,
    postponed: Vec<Row>,
}

// --- impl Bench ---

impl Bench {
    pub(crate) fn new(spec: DeviceSpec) -> Self {
        Self { spec, engines: IdMap::default(), lives: IdMap::default() }
    }

    /// Makes an engine and says what came of it.
    pub(crate) fn install(&mut self, install: Install) {
        let Install { node, make, reply } = install;
        let made = catch_unwind(AssertUnwindSafe(|| make(&self.spec.cx, &self.spec.gauge)));
        let outcome = match made {
            Ok(Ok(engine)) => {
                self.engines.insert(node, engine);
                Ok(())
            }
            Ok(Err(error)) => Err(DeviceError::Load(error)),
            Err(panic) => Err(DeviceError::Panicked(words(&*panic))),
        };
        let _ = reply.send(outcome);
    }

    /// Carries out a command. A batch's outcome is returned, with the time that the engine pretends to have taken.
    pub(crate) fn carry_out(&mut self, command: DeviceCommand) -> Option<(NodeIx, Executed, Option<Duration>)> {
        match command {
            DeviceCommand::Execute(batch) => {
                let node = batch.node;
                let executed = self.execute(batch);
                let simulated = self.engines.get(&node).and_then(|engine| engine.simulated());
                return Some((node, executed, simulated));
            }
            DeviceCommand::Retire(node, key) => self.with(node, |engine| engine.retire(key)),
            DeviceCommand::Reset(node, life) => {
                let latest = self.lives.entry(node).or_insert(life);
                // What a dead life says after the next one began is of the past.
                if *latest <= life {
                    *latest = life;
                    self.with(node, |engine| engine.reset());
                }
            }
            DeviceCommand::Usage(node, reply) => {
                let _ = reply.send(self.usage(node));
            }
        }
        None
    }

    /// Sends a batch's outcome to the node's live actor.
    pub(crate) fn report(&self, node: NodeIx, executed: Executed) {
        self.spec.routes.send(node, NodeMsg::Executed(executed));
    }

    fn execute(&mut self, batch: Batch) -> Executed {
        let Batch { node, incarnation, op, rows, max_tokens, sent } = batch;
        let started = Instant::now();
        let cx = ExecuteCx { cx: &self.spec.cx, gauge: &self.spec.gauge };
        let mut executed = Executed {
            incarnation,
            rows: Vec::new(),
            postponed: Vec::new(),
            usage: EngineUsage::default(),
            waited: started.saturating_duration_since(sent),
            ran: Duration::ZERO,
            broken: None,
        };
        let Some(engine) = self.engines.get_mut(&node) else {
            executed.broken = Some("its rank has no engine for it".to_owned());
            return executed;
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let sorted = sort(&**engine, &op, rows, max_tokens);
            let mut done = sorted.answered;
            if !sorted.run.is_empty() {
                let ran = engine.execute(&op, sorted.run, &cx);
                if done.is_empty() { done = ran } else { done.extend(ran) }
            }
            (done, sorted.postponed)
        }));
        match outcome {
            Ok((done, postponed)) => (executed.rows, executed.postponed) = (done, postponed),
            Err(panic) => {
                executed.broken = Some(words(&*panic));
                if catch_unwind(AssertUnwindSafe(|| engine.reset())).is_err() {
                    self.engines.remove(&node);
                }
            }
        }
        executed.usage = self.usage(node);
        executed.ran = started.elapsed();
        executed
    }

    fn usage(&self, node: NodeIx) -> EngineUsage {
        self.engines.get(&node).map(|engine| engine.usage()).unwrap_or_default()
    }

    fn with(&mut self, node: NodeIx, act: impl FnOnce(&mut dyn Engine)) {
        let Some(engine) = self.engines.get_mut(&node) else { return };
        if catch_unwind(AssertUnwindSafe(|| act(&mut **engine))).is_err() {
            // An engine that cannot even forget is not to be trusted with anything: its node finds none and fails.
            self.engines.remove(&node);
        }
    }
}

/// Takes rows in their order while there is room and the budget of tokens lasts; the first one may exceed it.
fn sort(engine: &dyn Engine, op: &mstar_graph::OpName, rows: Vec<Row>, max_tokens: usize) -> Sorted {
    let mut sorted = Sorted { run: Vec::with_capacity(rows.len()), ..Sorted::default() };
    let mut tokens = 0;
    for row in rows {
        if !sorted.postponed.is_empty() {
            sorted.postponed.push(row);
            continue;
        }
        match engine.room(op, &row) {
            Room::Ready => {
                tokens += engine.tokens(op, &row);
                if tokens > max_tokens && !sorted.run.is_empty() {
                    sorted.postponed.push(row);
                } else {
                    sorted.run.push(row);
                }
            }
            Room::Later => sorted.answered.push(RowProgress::Waiting(row)),
            Room::Never(error) => sorted.answered.push(RowProgress::Done(row.work, Err(error))),
        }
    }
    sorted
}

/// Returns a panic's message.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
