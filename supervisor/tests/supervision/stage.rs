//! A supervisor over actors that do as they are told, and the log of what it told its observer.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mstar_supervisor::{
    Backoff, ChildSpec, ChildState, Snapshot, StartError, SupervisionEvent, SupervisorRef, SupervisorSpec,
};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};

/// What an obedient actor can be told.
pub(crate) enum Order {
    Panic(&'static str),
    Fail(&'static str),
    Finish,
    Hang,
}

impl ractor::Message for Order {}

/// An actor that does as it is told.
pub(crate) struct Obedient;

impl Actor for Obedient {
    type Msg = Order;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Order>, order: Order, (): &mut ()) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Panic(why) => panic!("{why}"),
            Order::Fail(why) => return Err(why.into()),
            Order::Finish => myself.stop(Some("done".to_owned())),
            Order::Hang => std::future::pending().await,
        }
        Ok(())
    }
}

/// Starts an obedient actor.
pub(crate) async fn obedient(supervisor: ActorCell) -> Result<ActorCell, StartError> {
    let (actor, _) = Actor::spawn_linked(None, Obedient, (), supervisor).await?;
    Ok(actor.get_cell())
}

/// An actor that blocks its thread at the first order until the gate's other end is dropped.
struct Blocking(Mutex<Receiver<()>>);

impl Actor for Blocking {
    type Msg = Order;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Order>, _: Order, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.0.lock().unwrap().recv()?;
        Ok(())
    }
}

/// Starts, on a thread and runtime of its own, an actor that blocks that thread when told anything.
pub(crate) async fn blocking(supervisor: ActorCell, gate: Receiver<()>) -> Result<ActorCell, StartError> {
    let (up, started) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let spawned = Actor::spawn_linked(None, Blocking(Mutex::new(gate)), (), supervisor).await;
            let (actor, ended) = spawned.unwrap();
            up.send(actor.get_cell()).unwrap();
            ended.await.unwrap();
        });
    });
    started.await.map_err(|error| StartError(error.to_string()))
}

pub(crate) fn child(name: &str) -> ChildSpec {
    ChildSpec::new(name, |_, supervisor| obedient(supervisor))
}

/// A spec whose pauses are easy to read: 100 ms, doubled up to 1 s, no jitter.
pub(crate) fn spec(children: Vec<ChildSpec>) -> SupervisorSpec {
    let backoff =
        Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(1), jitter: 0.0, ..Backoff::default() };
    SupervisorSpec { backoff, ..SupervisorSpec::new(children) }
}

/// A running supervisor with its log.
pub(crate) struct Stage {
    pub(crate) supervisor: SupervisorRef,
    log: Log,
}

/// Lines as events came, and the live actor of each child.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    changes: tokio::sync::watch::Sender<()>,
    cells: BTreeMap<String, ActorCell>,
}

impl Log {
    pub(crate) fn observer(&self) -> Arc<dyn mstar_supervisor::Observe> {
        let log = self.clone();
        Arc::new(move |event: SupervisionEvent| {
            let mut heard = log.0.lock().unwrap();
            let name = event.child().to_owned();
            match &event {
                SupervisionEvent::Started { cell, .. } => drop(heard.cells.insert(name, cell.clone())),
                SupervisionEvent::Exited { .. } => drop(heard.cells.remove(&name)),
                _ => {}
            }
            heard.lines.push(line(&event));
            heard.changes.send_replace(());
        })
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }

    pub(crate) fn cell(&self, child: &str) -> ActorCell {
        self.0.lock().unwrap().cells[child].clone()
    }
}

fn line(event: &SupervisionEvent) -> String {
    match event {
        SupervisionEvent::Started { child, incarnation, .. } => format!("{child}#{incarnation} started"),
        SupervisionEvent::Exited { child, incarnation, reason } => format!("{child}#{incarnation} {reason}"),
        SupervisionEvent::Restarting { child, after, .. } => format!("{child} restarts after {after:?}"),
        SupervisionEvent::MarkedDown { child, reason } => format!("{child} down: {reason}"),
        SupervisionEvent::Stuck { report, .. } => format!("stuck: {report}"),
    }
}

impl Stage {
    /// Starts the supervisor and waits until it rests.
    pub(crate) async fn open(spec: SupervisorSpec) -> Stage {
        let log = Log::default();
        let supervisor = SupervisorRef::start(spec, log.observer()).await.unwrap();
        let stage = Stage { supervisor, log };
        stage.rest().await;
        stage
    }

    pub(crate) fn tell(&self, child: &str, order: Order) {
        self.log.cell(child).send_message(order).unwrap();
    }

    pub(crate) fn cell(&self, child: &str) -> ActorCell {
        self.log.cell(child)
    }

    /// Returns a child's actor, as far as the observer knows, while it has one.
    pub(crate) fn live(&self, child: &str) -> Option<ActorCell> {
        self.log.0.lock().unwrap().cells.get(child).cloned()
    }

    /// Tells a child something it does not survive and waits for its end, then until the tree rests.
    pub(crate) async fn crash(&self, child: &str, order: Order) -> Snapshot {
        let cell = self.cell(child);
        cell.send_message(order).unwrap();
        cell.wait(Some(Duration::from_secs(600))).await.unwrap();
        self.rest().await
    }

    pub(crate) async fn rest(&self) -> Snapshot {
        self.supervisor.settled(Duration::from_secs(3600)).await.unwrap()
    }

    pub(crate) async fn state(&self, child: &str) -> ChildState {
        self.supervisor.snapshot(Duration::from_secs(1)).await.unwrap().child(child).unwrap().state
    }

    /// Waits until the observer was told this.
    pub(crate) async fn heard(&self, line: &str) {
        let mut changes = self.log.0.lock().unwrap().changes.subscribe();
        let said =
            async { changes.wait_for(|_| self.log.0.lock().unwrap().lines.iter().any(|l| l == line)).await.map(drop) };
        tokio::time::timeout(Duration::from_secs(20), said).await.unwrap().unwrap();
    }

    /// Returns the log since the last call.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lines()
    }
}
