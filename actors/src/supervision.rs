//! What a supervisor of node actors tells: routes change first, then every walker hears of it.

use std::sync::Arc;

use mstar_supervisor::{Observe, SupervisionEvent};
use ractor::ActorRef;

use crate::messages::WalkerMsg;
use crate::metrics::{RESTARTS, UP};
use crate::routes::{Route, Routes};

/// Observes the supervisor of the node actors, whose children have the nodes' names.
pub struct SupervisionBridge {
    routes: Arc<Routes>,
    next: Option<Arc<dyn Observe>>,
}

// --- impl SupervisionBridge ---

impl SupervisionBridge {
    /// Keeps these routes true.
    pub fn new(routes: Arc<Routes>) -> Self {
        Self { routes, next: None }
    }

    /// Passes every event on afterwards, to who logs or counts them.
    pub fn then(mut self, next: Arc<dyn Observe>) -> Self {
        self.next = Some(next);
        self
    }

    fn note(&self, event: &SupervisionEvent) {
        let Some(node) = self.routes.find(event.child()) else { return };
        let up = |up: f64| metrics::gauge!(UP, "node" => event.child().to_owned()).set(up);
        match event {
            SupervisionEvent::Started { incarnation, cell, .. } => {
                self.routes.set(node, Route::Live(ActorRef::from(cell.clone()), *incarnation));
                up(1.0);
            }
            SupervisionEvent::Exited { .. } => {
                self.routes.set(node, Route::Starting);
                up(0.0);
                // Nothing to do for walkers before there is a new incarnation, or none will come.
                return;
            }
            SupervisionEvent::MarkedDown { reason, .. } => {
                self.routes.set(node, Route::Down(reason.as_str().into()));
                up(0.0);
            }
            SupervisionEvent::Restarting { .. } => {
                metrics::counter!(RESTARTS, "node" => event.child().to_owned()).increment(1);
                return;
            }
            SupervisionEvent::Stuck { .. } => return,
        }
        self.routes.tell_all(|| WalkerMsg::NodeReplaced(node));
    }
}

impl Observe for SupervisionBridge {
    fn event(&self, event: SupervisionEvent) {
        self.note(&event);
        if let Some(next) = &self.next {
            next.event(event);
        }
    }
}
