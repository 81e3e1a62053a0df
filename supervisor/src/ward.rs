//! The decisions of a supervisor, without actors: what happened goes in, what to do comes out.

use std::time::Duration;

use tokio::time::Instant;

use crate::intensity::{RestartWindow, Verdict};
use crate::messages::{ChildSnapshot, ChildState};
use crate::{
    Backoff, ExitReason, Incarnation, Ledger, OnExhausted, RestartPolicy, Strategy, StuckReport, SupervisionEvent,
};

/// What the supervisor has to do, in order.
#[derive(Debug)]
pub(crate) enum Step {
    /// Start this incarnation.
    Start { child: usize, incarnation: Incarnation },
    /// Abandon the start that is under way.
    Abort { child: usize },
    /// Ask the child to stop.
    Stop { child: usize },
    /// Kill the child.
    Kill { child: usize },
    /// Come back with `due` after a pause.
    Wait { child: usize, incarnation: Incarnation, after: Duration },
    /// Tell the observer.
    Tell(SupervisionEvent),
    /// Stop everything and fail, for this reason.
    Escalate(String),
}

/// The rules that hold for all children.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) strategy: Strategy,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) backoff: Backoff,
    pub(crate) seed: u64,
    pub(crate) ledger: Ledger,
}

/// All children and how they stand.
#[derive(Debug)]
pub(crate) struct Ward {
    rules: Rules,
    together: Option<RestartWindow>,
    children: Vec<Charge>,
}

/// One child and how it stands.
#[derive(Debug)]
pub(crate) struct Charge {
    name: String,
    restart: RestartPolicy,
    window: RestartWindow,
    state: ChildState,
    incarnation: Incarnation,
    restarts: u64,
    failures_in_row: u32,
    running_since: Option<Instant>,
    killed_for: Option<StuckReport>,
    last_reason: Option<ExitReason>,
}

// --- impl Charge ---

impl Charge {
    pub(crate) fn new(name: String, restart: RestartPolicy, window: RestartWindow) -> Self {
        Charge {
            name,
            restart,
            window,
            state: ChildState::Held,
            incarnation: Incarnation(0),
            restarts: 0,
            failures_in_row: 0,
            running_since: None,
            killed_for: None,
            last_reason: None,
        }
    }

    fn wants_restart(&self, reason: &ExitReason) -> bool {
        match self.restart {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => reason.is_failure(),
            RestartPolicy::Never => false,
        }
    }
}

// --- impl Ward ---

impl Ward {
    pub(crate) fn new(rules: Rules, together: Option<RestartWindow>, children: Vec<Charge>) -> Self {
        Ward { rules, together, children }
    }

    /// Takes every step that the standing allows: the next stop, the next starts.
    pub(crate) fn advance(&mut self) -> Vec<Step> {
        match self.rules.strategy {
            Strategy::OneForOne => {
                let held: Vec<usize> =
                    (0..self.children.len()).filter(|&child| self.children[child].state == ChildState::Held).collect();
                held.into_iter().map(|child| self.start(child)).collect()
            }
            Strategy::RestForOne => self.advance_in_line(),
        }
    }

    /// Notes that a child is up.
    pub(crate) fn started(&mut self, child: usize, now: Instant) -> Vec<Step> {
        self.children[child].state = ChildState::Running;
        self.children[child].running_since = Some(now);
        self.advance()
    }

    /// Notes that a child's current incarnation is gone and decides what becomes of it.
    pub(crate) fn exited(&mut self, child: usize, reason: ExitReason, now: Instant) -> Vec<Step> {
        let charge = &mut self.children[child];
        let asked_to_stop = charge.state == ChildState::Stopping;
        let held_back = matches!(charge.state, ChildState::Stopping | ChildState::Doomed);
        let reason = match charge.killed_for.take() {
            Some(report) => ExitReason::Stuck(report),
            None if asked_to_stop && !matches!(reason, ExitReason::Failed(_)) => ExitReason::Stopped,
            None => reason,
        };
        let ran_steadily = charge
            .running_since
            .take()
            .is_some_and(|since| now.duration_since(since) >= self.rules.backoff.steady_after);
        if ran_steadily {
            charge.failures_in_row = 0;
        }
        charge.last_reason = Some(reason.clone());
        let exited = SupervisionEvent::Exited {
            child: charge.name.clone(),
            incarnation: charge.incarnation,
            reason: reason.clone(),
        };
        let mut steps = vec![Step::Tell(exited)];
        if held_back {
            charge.state = ChildState::Held;
        } else if !charge.wants_restart(&reason) {
            charge.state = ChildState::Finished;
        } else {
            steps.extend(self.judge(child, &reason, now));
        }
        steps.extend(self.advance());
        steps
    }

    /// Notes that the pause before a restart is over.
    pub(crate) fn due(&mut self, child: usize, incarnation: Incarnation) -> Vec<Step> {
        if !self.is(child, incarnation, ChildState::BackingOff) {
            return Vec::new();
        }
        self.children[child].state = ChildState::Held;
        self.advance()
    }

    /// Notes that a child is stuck; `kill` says whether it is to be killed for it.
    pub(crate) fn stuck(&mut self, child: usize, report: StuckReport, kill: bool) -> Vec<Step> {
        let charge = &mut self.children[child];
        let mut steps =
            vec![Step::Tell(SupervisionEvent::Stuck { child: charge.name.clone(), report: report.clone() })];
        if kill && charge.state == ChildState::Running {
            charge.state = ChildState::Killing;
            charge.killed_for = Some(report);
            steps.push(Step::Kill { child });
        }
        steps
    }

    /// Starts a child that is down again (with those that wait for it); `None` when no child of this name is down.
    pub(crate) fn revive(&mut self, name: &str) -> Option<Vec<Step>> {
        let child = self.children.iter().position(|charge| charge.name == name && charge.state == ChildState::Down)?;
        let rest = match self.rules.strategy {
            Strategy::OneForOne => child + 1,
            Strategy::RestForOne => self.children.len(),
        };
        for charge in self.children[child..rest].iter_mut().filter(|charge| charge.state == ChildState::Down) {
            charge.state = ChildState::Held;
            charge.window.clear();
            charge.failures_in_row = 0;
        }
        Some(self.advance())
    }

    /// Whether this incarnation of the child is in this state.
    pub(crate) fn is(&self, child: usize, incarnation: Incarnation, state: ChildState) -> bool {
        self.children[child].incarnation == incarnation && self.children[child].state == state
    }

    pub(crate) fn name(&self, child: usize) -> &str {
        &self.children[child].name
    }

    pub(crate) fn state(&self, child: usize) -> ChildState {
        self.children[child].state
    }

    pub(crate) fn incarnation(&self, child: usize) -> Incarnation {
        self.children[child].incarnation
    }

    /// Whether no child is on its way to another state.
    pub(crate) fn settled(&self) -> bool {
        self.children.iter().all(|c| matches!(c.state, ChildState::Running | ChildState::Finished | ChildState::Down))
    }

    pub(crate) fn snapshot(&self, child: usize) -> ChildSnapshot {
        let charge = &self.children[child];
        ChildSnapshot {
            name: charge.name.clone(),
            state: charge.state,
            incarnation: charge.incarnation,
            restarts: charge.restarts,
            last_reason: charge.last_reason.as_ref().map(ExitReason::to_string),
            waiting: None,
            ticks: None,
        }
    }

    /// Restarts the child after a pause, or gives it up.
    fn judge(&mut self, child: usize, reason: &ExitReason, now: Instant) -> Vec<Step> {
        if self.children[child].window.ask(now) == Verdict::Exhausted {
            return self.give_up(child, reason);
        }
        if let Some(window) = self.together.as_mut()
            && window.ask(now) == Verdict::Exhausted
        {
            let (limit, name) = (window.intensity(), self.name(child));
            return vec![Step::Escalate(format!(
                "all children together exceeded {limit}; the last was {name}: {reason}"
            ))];
        }
        let charge = &mut self.children[child];
        charge.restarts += 1;
        let draw = self.rules.seed ^ (child as u64).rotate_left(32) ^ charge.restarts;
        let after = self.rules.backoff.delay(charge.failures_in_row, draw);
        charge.failures_in_row = charge.failures_in_row.saturating_add(1);
        charge.state = ChildState::BackingOff;
        let (name, restarts, incarnation) = (charge.name.clone(), charge.restarts, charge.incarnation);
        let mut steps = self.hold_rest(child);
        steps.push(Step::Tell(SupervisionEvent::Restarting { child: name, restarts, after }));
        steps.push(Step::Wait { child, incarnation, after });
        steps
    }

    fn give_up(&mut self, child: usize, reason: &ExitReason) -> Vec<Step> {
        let charge = &mut self.children[child];
        let why = format!("exceeded {}; last: {reason}", charge.window.intensity());
        charge.state = ChildState::Down;
        let down = Step::Tell(SupervisionEvent::MarkedDown { child: charge.name.clone(), reason: why.clone() });
        let name = charge.name.clone();
        match self.rules.on_exhausted {
            OnExhausted::Escalate => vec![down, Step::Escalate(format!("{name} {why}"))],
            OnExhausted::MarkDown => {
                let mut steps = vec![down];
                steps.extend(self.hold_rest(child));
                steps
            }
        }
    }

    /// Rest for one: dooms what runs after `child` and takes back what was about to start.
    fn hold_rest(&mut self, child: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.rules.strategy == Strategy::OneForOne {
            return steps;
        }
        for after in (child + 1..self.children.len()).rev() {
            let charge = &mut self.children[after];
            match charge.state {
                ChildState::Running => charge.state = ChildState::Doomed,
                ChildState::Killing => charge.state = ChildState::Stopping,
                ChildState::BackingOff => charge.state = ChildState::Held,
                ChildState::Starting => {
                    charge.state = ChildState::Held;
                    steps.push(Step::Abort { child: after });
                }
                _ => {}
            }
        }
        steps
    }

    /// Rest for one: stops the last doomed child first; once none is left, starts the first held one whose elders are all up.
    fn advance_in_line(&mut self) -> Vec<Step> {
        if self.children.iter().any(|charge| charge.state == ChildState::Stopping) {
            return Vec::new();
        }
        if let Some(child) = self.children.iter().rposition(|charge| charge.state == ChildState::Doomed) {
            self.children[child].state = ChildState::Stopping;
            return vec![Step::Stop { child }];
        }
        for child in 0..self.children.len() {
            match self.children[child].state {
                ChildState::Running | ChildState::Finished => {}
                ChildState::Held => return vec![self.start(child)],
                ChildState::Down => return self.down_with(child),
                _ => return Vec::new(),
            }
        }
        Vec::new()
    }

    /// Rest for one: what waits for a child that is down is down as well.
    fn down_with(&mut self, child: usize) -> Vec<Step> {
        let reason = format!("{} is down", self.children[child].name);
        let waiting = self.children[child + 1..].iter_mut().filter(|charge| charge.state == ChildState::Held);
        waiting
            .map(|charge| {
                charge.state = ChildState::Down;
                Step::Tell(SupervisionEvent::MarkedDown { child: charge.name.clone(), reason: reason.clone() })
            })
            .collect()
    }

    fn start(&mut self, child: usize) -> Step {
        let charge = &mut self.children[child];
        charge.state = ChildState::Starting;
        charge.incarnation = self.rules.ledger.next(&charge.name);
        Step::Start { child, incarnation: charge.incarnation }
    }
}
