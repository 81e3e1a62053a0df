//! The engines of a rank and how a command is carried out: the same for the compute thread and the simulation.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{Engine, EngineUsage, ExecuteCx};
use mstar_supervisor::Incarnation;
use tokio::time::Instant;

use crate::device::{DeviceError, DeviceSpec, Install, MakeEngine};
use crate::ids::IdMap;
use crate::messages::{Batch, DeviceCommand, Executed, NodeIx, NodeMsg};

/// A rank's engines.
pub(crate) struct Bench {
    pub(crate) spec: DeviceSpec,
    bays: IdMap<NodeIx, Bay>,
    /// The latest life of each node that was heard of.
    lives: IdMap<NodeIx, Incarnation>,
}

/// A node's place on the bench.
struct Bay {
    make: MakeEngine,
    /// The engine, or why there is none. While it computes it is not here.
    engine: Result<Box<dyn Engine>, String>,
}

/// What happens when a batch yields: returns how long it was away. The node that computes is no business of others.
pub(crate) type Aside<'a> = &'a mut dyn FnMut(&mut Bench) -> Duration;

// --- impl Bench ---

impl Bench {
    pub(crate) fn new(spec: DeviceSpec) -> Self {
        Self { spec, bays: IdMap::default(), lives: IdMap::default() }
    }

    /// Makes an engine and says what came of it.
    pub(crate) fn install(&mut self, install: Install) {
        let Install { node, make, reply } = install;
        let outcome = self.make(&make).map(|engine| {
            self.bays.insert(node, Bay { make, engine: Ok(engine) });
        });
        let _ = reply.send(outcome);
    }

    fn make(&self, make: &MakeEngine) -> Result<Box<dyn Engine>, DeviceError> {
        match catch_unwind(AssertUnwindSafe(|| make(&self.spec.cx, &self.spec.gauge))) {
            Ok(made) => made.map_err(DeviceError::Load),
            Err(panic) => Err(DeviceError::Panicked(words(&*panic))),
        }
    }

    /// Carries out a command. A batch's outcome is returned, with the time that the engine pretends to have taken.
    pub(crate) fn carry_out(
        &mut self,
        command: DeviceCommand,
        aside: Aside<'_>,
    ) -> Option<(NodeIx, Executed, Option<Duration>)> {
        match command {
            DeviceCommand::Execute(batch) => {
                let node = batch.node;
                let (executed, simulated) = self.execute(batch, aside);
                return Some((node, executed, simulated));
            }
            DeviceCommand::Retire(node, key) => self.forget(node, "a request", |engine| engine.retire(key)),
            DeviceCommand::Reset(node, life) => {
                let latest = self.lives.entry(node).or_insert(life);
                // What a dead life says after the next one began is of the past.
                if *latest <= life {
                    *latest = life;
                    self.reset(node);
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

    fn execute(&mut self, batch: Batch, aside: Aside<'_>) -> (Executed, Option<Duration>) {
        let Batch { node, incarnation, rows, sent, .. } = batch;
        let started = Instant::now();
        let mut executed = Executed {
            incarnation,
            rows: Vec::new(),
            usage: EngineUsage::default(),
            waited: started.saturating_duration_since(sent),
            ran: Duration::ZERO,
            broken: None,
        };
        let mut engine = match self.take(node) {
            Ok(engine) => engine,
            Err(why) => return (Executed { broken: Some(why), ..executed }, None),
        };
        let (cx, gauge, away) = (self.spec.cx.clone(), Arc::clone(&self.spec.gauge), Cell::new(Duration::ZERO));
        let others = RefCell::new((&mut *self, aside));
        let yields = || {
            let (bench, aside) = &mut *others.borrow_mut();
            away.set(away.get() + aside(bench));
        };
        let cx = ExecuteCx { cx: &cx, gauge: &gauge, yields: &yields };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let rows = engine.execute(rows, &cx);
            let simulated = engine.simulated();
            let ran = simulated.unwrap_or_else(|| started.elapsed().saturating_sub(away.get()));
            engine.timed(ran);
            (rows, ran, simulated)
        }));
        self.put_back(node, engine);
        let mut simulated = None;
        match outcome {
            Ok(done) => (executed.rows, executed.ran, simulated) = done,
            Err(panic) => {
                executed.ran = started.elapsed().saturating_sub(away.get());
                executed.broken = Some(words(&*panic));
                self.forget(node, "everything", |engine| engine.reset());
            }
        }
        executed.usage = self.usage(node);
        (executed, simulated)
    }

    /// Takes a node's engine to compute with it, or says why there is none.
    fn take(&mut self, node: NodeIx) -> Result<Box<dyn Engine>, String> {
        match self.bays.get_mut(&node).map(|bay| &mut bay.engine) {
            Some(Err(why)) => Err(why.clone()),
            Some(engine) => std::mem::replace(engine, Err("it computes".to_owned())),
            None => Err("its rank has no engine for it".to_owned()),
        }
    }

    fn put_back(&mut self, node: NodeIx, engine: Box<dyn Engine>) {
        if let Some(bay) = self.bays.get_mut(&node) {
            bay.engine = Ok(engine);
        }
    }

    fn usage(&self, node: NodeIx) -> EngineUsage {
        self.engine(node).map(|engine| engine.usage()).unwrap_or_default()
    }

    fn engine(&self, node: NodeIx) -> Option<&dyn Engine> {
        self.bays.get(&node)?.engine.as_deref().ok()
    }

    /// Lets an engine forget something. One that cannot is not to be trusted with anything: its node finds none, ends,
    /// and is reset.
    fn forget(&mut self, node: NodeIx, what: &str, act: impl FnOnce(&mut dyn Engine)) {
        let Some(bay) = self.bays.get_mut(&node) else { return };
        let Ok(engine) = &mut bay.engine else { return };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(&mut **engine))) {
            bay.empty(format!("it could not forget {what}: {}", words(&*panic)));
        }
    }

    /// Lets an engine forget everything; where it cannot, or is gone, another is made in its place.
    fn reset(&mut self, node: NodeIx) {
        self.forget(node, "everything", |engine| engine.reset());
        let Some(mut bay) = self.bays.remove(&node) else { return };
        if let Err(why) = &bay.engine {
            let name = self.spec.routes.name(node);
            tracing::warn!(node = name, "the engine is made anew: {why}");
            bay.engine = self.make(&bay.make).map_err(|error| format!("it could not be made anew: {}", chain(&error)));
        }
        self.bays.insert(node, bay);
    }
}

// --- impl Bay ---

impl Bay {
    /// Drops the engine at once: there may not be memory for two.
    fn empty(&mut self, why: String) {
        let engine = std::mem::replace(&mut self.engine, Err(why));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
    }
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns a panic's message.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use mstar_contract::{Gauge, LoadError, RequestKey, Row, RowProgress};
    use mstar_kernels::Cx;

    use super::*;
    use crate::routes::Routes;

    const NODE: NodeIx = NodeIx(0);

    /// An engine that panics at whatever it is told to.
    struct Fragile(&'static str);

    impl Fragile {
        fn at(&self, what: &str) {
            assert!(self.0 != what, "cannot {what}");
        }
    }

    impl Engine for Fragile {
        fn execute(&mut self, _: Vec<Row>, _: &ExecuteCx<'_>) -> Vec<RowProgress> {
            Vec::new()
        }
        fn retire(&mut self, _: RequestKey) {
            self.at("retire");
        }
        fn reset(&mut self) {
            self.at("reset");
        }
        fn usage(&self) -> EngineUsage {
            EngineUsage::default()
        }
    }

    /// A bench with an engine that is `first`; those made later are sound, or are not made at all.
    fn bench(first: &'static str, again: Result<(), &'static str>) -> (Bench, Arc<AtomicU32>) {
        let (cx, gauge) = (Cx::with_threads(1).unwrap(), Gauge::new("cpu0"));
        let mut bench = Bench::new(DeviceSpec { name: "cpu0".into(), cx, gauge, routes: Routes::new(["n"]) });
        let made = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&made);
        let make = move |_: &Cx, _: &Arc<Gauge>| -> Result<Box<dyn Engine>, LoadError> {
            match (count.fetch_add(1, Ordering::SeqCst), &again) {
                (0, _) => Ok(Box::new(Fragile(first))),
                (_, Ok(())) => Ok(Box::new(Fragile("nothing"))),
                (_, Err(why)) => Err(LoadError { component: "c".into(), message: (*why).to_owned() }),
            }
        };
        let (reply, _) = tokio::sync::oneshot::channel();
        bench.install(Install { node: NODE, make: Box::new(make), reply });
        (bench, made)
    }

    /// Runs an empty batch and returns why the engine is broken, if it is.
    fn broken(bench: &mut Bench) -> Option<String> {
        let (rows, sent) = (Vec::new(), Instant::now());
        let batch = Batch { node: NODE, incarnation: Incarnation(1), rows, sent, due: None };
        bench
            .carry_out(DeviceCommand::Execute(batch), &mut |_| Duration::ZERO)
            .and_then(|(_, executed, _)| executed.broken)
    }

    fn tell(bench: &mut Bench, command: DeviceCommand) {
        assert!(bench.carry_out(command, &mut |_| Duration::ZERO).is_none());
    }

    #[test]
    fn an_engine_that_cannot_be_reset_is_made_anew() {
        let (mut bench, made) = bench("reset", Ok(()));
        tell(&mut bench, DeviceCommand::Reset(NODE, Incarnation(1)));
        tell(&mut bench, DeviceCommand::Reset(NODE, Incarnation(2)));
        assert_eq!((broken(&mut bench), made.load(Ordering::SeqCst)), (None, 2));
    }

    #[test]
    fn an_engine_that_cannot_retire_serves_no_more_before_it_is_made_anew() {
        let (mut bench, made) = bench("retire", Ok(()));
        tell(&mut bench, DeviceCommand::Retire(NODE, RequestKey { id: 1, attempt: 0 }));
        assert_eq!(broken(&mut bench).as_deref(), Some("it could not forget a request: cannot retire"));
        tell(&mut bench, DeviceCommand::Reset(NODE, Incarnation(2)));
        assert_eq!((broken(&mut bench), made.load(Ordering::SeqCst)), (None, 2));
    }

    #[test]
    fn an_engine_that_cannot_be_made_anew_says_why() {
        let (mut bench, _) = bench("reset", Err("the file is gone"));
        tell(&mut bench, DeviceCommand::Reset(NODE, Incarnation(1)));
        let why = "it could not be made anew: the engine could not be made: c: the file is gone";
        assert_eq!(broken(&mut bench).as_deref(), Some(why));
    }
}
