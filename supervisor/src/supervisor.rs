//! The supervisor actor: turns what it hears into questions to the [`Ward`] and the answers into starts, stops and timers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort};
use tokio::time::Instant;

use crate::health::Watch;
use crate::intensity::RestartWindow;
use crate::messages::{ChildState, Due, Snapshot, SupervisorMsg};
use crate::starter::{Job, Starter};
use crate::ward::{Charge, Rules, Step, Ward};
use crate::{
    ChildSpec, ExitReason, Health, Incarnation, Observe, OnStuck, StartError, SupervisionEvent, SupervisorSpec,
};

/// Watches over children.
pub(crate) struct Supervisor;

/// What a supervisor starts with.
pub(crate) struct Charter {
    pub(crate) spec: SupervisorSpec,
    pub(crate) observer: Arc<dyn Observe>,
}

/// The supervisor's possessions: the pure [`Ward`], and the live actors it decides about.
pub(crate) struct SupervisorState {
    ward: Ward,
    observer: Arc<dyn Observe>,
    children: Vec<Live>,
    /// Exits of actors that no child is known to be yet: their start has not reported back. Empty when nothing starts.
    early_exits: HashMap<ActorId, ExitReason>,
    waiting_for_rest: Vec<RpcReplyPort<Snapshot>>,
    watched_every: Option<Duration>,
    kill_within: Duration,
}

/// The live side of a child.
struct Live {
    spec: ChildSpec,
    cell: Option<ActorCell>,
    starter: Option<ActorCell>,
    watch: Watch,
}

// --- impl Supervisor ---

impl Actor for Supervisor {
    type Msg = SupervisorMsg;
    type State = SupervisorState;
    type Arguments = Charter;

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMsg>,
        charter: Charter,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        Ok(SupervisorState::new(charter))
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(check_every) = state.watched_every {
            myself.send_interval(check_every, || SupervisorMsg::CheckHealth);
        }
        let steps = state.ward.advance();
        state.take(&myself, steps).await
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let steps = match message {
            SupervisorMsg::StartReturned { child, incarnation, result } => {
                state.start_returned(&myself, child, incarnation, result)
            }
            SupervisorMsg::Due { child, incarnation, what } => state.due(&myself, child, incarnation, what),
            SupervisorMsg::CheckHealth => state.check_health(),
            SupervisorMsg::Snapshot(reply) => {
                // The asker may have left: nothing is lost.
                let _ = reply.send(state.snapshot());
                Vec::new()
            }
            SupervisorMsg::Settled(reply) => {
                state.waiting_for_rest.retain(|port| !port.is_closed());
                state.waiting_for_rest.push(reply);
                Vec::new()
            }
            SupervisorMsg::Revive(name, reply) => {
                let steps = state.ward.revive(&name);
                let _ = reply.send(steps.is_some());
                steps.unwrap_or_default()
            }
        };
        state.take(&myself, steps).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMsg>,
        event: ractor::SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let steps = match event {
            ractor::SupervisionEvent::ActorFailed(cell, error) => {
                state.actor_ended(&myself, &cell, ExitReason::Failed(error.to_string()))
            }
            ractor::SupervisionEvent::ActorTerminated(cell, last, reason) => {
                state.actor_ended(&myself, &cell, termination(last.is_some(), reason))
            }
            _ => Vec::new(),
        };
        state.take(&myself, steps).await
    }

    async fn post_stop(
        &self,
        _: ActorRef<SupervisorMsg>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        state.stop_all().await;
        Ok(())
    }
}

/// Reads an exit that was no failure. ractor gives a kill that reason; an actor that ended by itself hands over its state.
fn termination(handed_over: bool, reason: Option<String>) -> ExitReason {
    match reason {
        Some(reason) if reason == "killed" => ExitReason::Killed,
        Some(reason) if !handed_over => ExitReason::Failed(reason),
        reason => ExitReason::Finished(reason),
    }
}

// --- impl SupervisorState ---

impl SupervisorState {
    fn new(charter: Charter) -> Self {
        let Charter { spec, observer } = charter;
        let charges = spec
            .children
            .iter()
            .map(|c| Charge::new(c.name.clone(), c.restart, RestartWindow::new(c.intensity)))
            .collect();
        let rules = Rules {
            strategy: spec.strategy,
            on_exhausted: spec.on_exhausted,
            backoff: spec.backoff,
            seed: spec.seed,
            ledger: spec.ledger,
        };
        let now = Instant::now();
        let live = |spec| Live { spec, cell: None, starter: None, watch: Watch::new(now) };
        SupervisorState {
            ward: Ward::new(rules, spec.intensity.map(RestartWindow::new), charges),
            observer,
            watched_every: spec.children.iter().any(|c| c.health.is_some()).then_some(spec.check_every),
            kill_within: spec.kill_within,
            children: spec.children.into_iter().map(live).collect(),
            early_exits: HashMap::new(),
            waiting_for_rest: Vec::new(),
        }
    }

    /// Takes the steps decided on, then answers those who wait for the tree to come to rest.
    async fn take(&mut self, myself: &ActorRef<SupervisorMsg>, steps: Vec<Step>) -> Result<(), ActorProcessingErr> {
        for step in steps {
            match step {
                Step::Start { child, incarnation } => self.start(myself, child, incarnation).await?,
                Step::Abort { child } => self.abort_start(child),
                Step::Stop { child } => self.stop(myself, child),
                Step::Kill { child } => self.kill(myself, child),
                Step::Wait { child, incarnation, after } => remind(myself, child, incarnation, (Due::Restart, after)),
                Step::Tell(event) => self.observer.event(event),
                Step::Escalate(reason) => {
                    self.stop_all().await;
                    return Err(reason.into());
                }
            }
        }
        if self.ward.settled() {
            for reply in std::mem::take(&mut self.waiting_for_rest) {
                let _ = reply.send(self.snapshot());
            }
        }
        Ok(())
    }

    async fn start(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        child: usize,
        incarnation: Incarnation,
    ) -> Result<(), ActorProcessingErr> {
        let live = &mut self.children[child];
        if let Some(health) = &live.spec.health {
            // The last incarnation's work went with its mailbox.
            health.progress.set_waiting(0);
        }
        let job = Job { child, incarnation, start: live.spec.start.clone(), supervisor: myself.clone() };
        let (starter, _) = Actor::spawn_linked(None, Starter, job, myself.get_cell()).await?;
        live.starter = Some(starter.get_cell());
        remind(myself, child, incarnation, (Due::Start, live.spec.start_within));
        Ok(())
    }

    fn start_returned(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        child: usize,
        incarnation: Incarnation,
        result: Result<ActorCell, StartError>,
    ) -> Vec<Step> {
        if !self.ward.is(child, incarnation, ChildState::Starting) {
            // Too late: this start was given up. What it started must not live.
            if let Ok(cell) = result {
                cell.kill();
            }
            return Vec::new();
        }
        self.children[child].starter = None;
        let cell = match result {
            Ok(cell) => cell,
            Err(error) => {
                self.forget_strangers(myself);
                return self.ended(child, ExitReason::StartFailed(error.to_string()));
            }
        };
        let early = self.early_exits.remove(&cell.get_id());
        if early.is_none() {
            if cell.try_get_supervisor().is_none() {
                cell.link(myself.get_cell());
            }
            if cell.get_status() >= ActorStatus::Stopping {
                remind(myself, child, incarnation, (Due::Exit, Duration::ZERO));
            }
        }
        self.children[child].cell = Some(cell.clone());
        let name = self.ward.name(child).to_owned();
        let mut steps = vec![Step::Tell(SupervisionEvent::Started { child: name, incarnation, cell })];
        self.children[child].watch = Watch::new(Instant::now());
        steps.extend(self.ward.started(child, Instant::now()));
        if let Some(reason) = early {
            steps.extend(self.ended(child, reason));
        }
        self.forget_strangers(myself);
        steps
    }

    /// An actor linked to this supervisor ended: a starter, a child, or a child whose start has not reported back yet.
    fn actor_ended(&mut self, myself: &ActorRef<SupervisorMsg>, cell: &ActorCell, reason: ExitReason) -> Vec<Step> {
        if let Some(child) = self.children.iter().position(|live| live.starter.as_ref() == Some(cell)) {
            // A starter that ended well has sent its answer, which is on its way.
            let ExitReason::Failed(why) = reason else { return Vec::new() };
            let steps = self.ended(child, ExitReason::StartFailed(why));
            self.forget_strangers(myself);
            return steps;
        }
        if let Some(child) = self.children.iter().position(|live| live.cell.as_ref() == Some(cell)) {
            return self.ended(child, reason);
        }
        if self.starting() {
            self.early_exits.insert(cell.get_id(), reason);
        }
        Vec::new()
    }

    fn due(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        child: usize,
        incarnation: Incarnation,
        what: Due,
    ) -> Vec<Step> {
        if self.ward.incarnation(child) != incarnation {
            return Vec::new();
        }
        let (state, alive) = (self.ward.state(child), self.children[child].cell.is_some());
        match what {
            Due::Restart => self.ward.due(child, incarnation),
            Due::Start if state == ChildState::Starting => {
                self.abort_start(child);
                let why = format!("not up within {:?}", self.children[child].spec.start_within);
                let steps = self.ended(child, ExitReason::StartFailed(why));
                self.forget_strangers(myself);
                steps
            }
            Due::Stop if state == ChildState::Stopping => {
                self.kill(myself, child);
                Vec::new()
            }
            Due::Kill if alive && matches!(state, ChildState::Stopping | ChildState::Killing) => {
                self.ended(child, ExitReason::Killed)
            }
            Due::Exit if alive => self.ended(child, ExitReason::Failed("ended during its start".to_owned())),
            _ => Vec::new(),
        }
    }

    fn check_health(&mut self) -> Vec<Step> {
        let now = Instant::now();
        let mut steps = Vec::new();
        for (child, live) in self.children.iter_mut().enumerate() {
            let Some(health) = live.spec.health.as_ref().filter(|_| self.ward.state(child) == ChildState::Running)
            else {
                continue;
            };
            if let Some(report) = live.watch.look(&live.spec.name, health, now) {
                steps.extend(self.ward.stuck(child, report, health.on_stuck == OnStuck::Restart));
            }
        }
        steps
    }

    /// Forgets a child's actor and lets the ward decide.
    fn ended(&mut self, child: usize, reason: ExitReason) -> Vec<Step> {
        self.children[child].cell = None;
        self.children[child].starter = None;
        self.ward.exited(child, reason, Instant::now())
    }

    fn abort_start(&mut self, child: usize) {
        if let Some(starter) = self.children[child].starter.take() {
            starter.kill();
        }
    }

    fn stop(&mut self, myself: &ActorRef<SupervisorMsg>, child: usize) {
        if let Some(cell) = &self.children[child].cell {
            cell.stop(None);
        }
        remind(myself, child, self.ward.incarnation(child), (Due::Stop, self.children[child].spec.shutdown_within));
    }

    fn kill(&mut self, myself: &ActorRef<SupervisorMsg>, child: usize) {
        if let Some(cell) = &self.children[child].cell {
            cell.kill();
        }
        remind(myself, child, self.ward.incarnation(child), (Due::Kill, self.kill_within));
    }

    fn starting(&self) -> bool {
        self.children.iter().any(|live| live.starter.is_some())
    }

    /// Once nothing starts, kills linked actors that are no child: a start that was given up left them behind.
    fn forget_strangers(&mut self, myself: &ActorRef<SupervisorMsg>) {
        if self.starting() {
            return;
        }
        self.early_exits.clear();
        for cell in myself.get_children() {
            if !self.children.iter().any(|live| live.cell.as_ref() == Some(&cell)) {
                cell.kill();
            }
        }
    }

    /// Stops all children in reverse order, each within its deadline, and tells the observer of each.
    async fn stop_all(&mut self) {
        for child in (0..self.children.len()).rev() {
            self.abort_start(child);
            let Some(cell) = self.children[child].cell.take() else { continue };
            if cell.stop_and_wait(None, Some(self.children[child].spec.shutdown_within)).await.is_err() {
                // Late or already ended; a kill is right for the first and harmless for the second.
                let _ = cell.kill_and_wait(Some(self.kill_within)).await;
            }
            let (child, incarnation) = (self.ward.name(child).to_owned(), self.ward.incarnation(child));
            self.observer.event(SupervisionEvent::Exited { child, incarnation, reason: ExitReason::Stopped });
        }
    }

    fn snapshot(&self) -> Snapshot {
        let view = |(child, live): (usize, &Live)| {
            let mut snapshot = self.ward.snapshot(child);
            let progress = live.spec.health.as_ref().map(|Health { progress, .. }| progress);
            snapshot.waiting = progress.map(|progress| progress.waiting());
            snapshot.ticks = progress.map(|progress| progress.ticks());
            snapshot
        };
        Snapshot { children: self.children.iter().enumerate().map(view).collect() }
    }
}

/// Sends the supervisor a reminder.
fn remind(myself: &ActorRef<SupervisorMsg>, child: usize, incarnation: Incarnation, (what, after): (Due, Duration)) {
    if after.is_zero() {
        // The supervisor lives: this runs in its own handler.
        let _ = myself.cast(SupervisorMsg::Due { child, incarnation, what });
        return;
    }
    myself.send_after(after, move || SupervisorMsg::Due { child, incarnation, what });
}
