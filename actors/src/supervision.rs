//! What a supervisor of node actors tells: routes change first, then every walker hears of it.

use std::sync::Arc;

use mstar_supervisor::{Observe, SupervisionEvent};
use ractor::ActorRef;

use crate::ingress::INGRESS;
use crate::messages::WalkerMsg;
use crate::metrics::{RESTARTS, UP};
use crate::routes::{Route, Routes};

/// Observes the supervisor of the node actors, whose children have the nodes' names, and of the ingress.
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
        if event.child() == INGRESS {
            return self.note_ingress(event);
        }
        let Some(node) = self.routes.find(event.child()) else { return };
        let Some(route) = route_after(event) else {
            if let SupervisionEvent::Restarting { .. } = event {
                metrics::counter!(RESTARTS, "node" => event.child().to_owned()).increment(1);
            }
            return;
        };
        let (up, awaited) = (matches!(route, Route::Live(..)), matches!(route, Route::Starting));
        metrics::gauge!(UP, "node" => event.child().to_owned()).set(if up { 1.0 } else { 0.0 });
        self.routes.set(node, route);
        // There is nothing to do for walkers before there is a new incarnation, or none will come.
        if !awaited {
            self.routes.tell_all(|| WalkerMsg::NodeReplaced(node));
        }
    }

    fn note_ingress(&self, event: &SupervisionEvent) {
        if let Some(route) = route_after(event) {
            self.routes.set_ingress(route);
        }
    }
}

/// Returns where a child's messages go after an event, if it changes that.
fn route_after<M>(event: &SupervisionEvent) -> Option<Route<ActorRef<M>>> {
    match event {
        SupervisionEvent::Started { incarnation, cell, .. } => {
            Some(Route::Live(ActorRef::from(cell.clone()), *incarnation))
        }
        SupervisionEvent::Exited { .. } => Some(Route::Starting),
        SupervisionEvent::MarkedDown { reason, .. } => Some(Route::Down(reason.as_str().into())),
        SupervisionEvent::Restarting { .. } | SupervisionEvent::Stuck { .. } => None,
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
