//! What to do about a node that was replaced. [`remedy`] decides, from what the request has there.

use mstar_contract::{Failure, FailureKind, Recovery};

use crate::messages::NodeIx;
use crate::routes::Route;
use crate::walker::{Outcome, WalkerState};

/// What repairs a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send what is in flight again.
    Resend,
    /// The same, with the journal of the sequence.
    Rebuild,
    /// Run the request again.
    Again,
}

/// What a request has at a node that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stake {
    /// What the component says of lost state.
    pub(crate) recovery: Recovery,
    /// Whether a step was sent there.
    pub(crate) stepped: bool,
    /// Whether it consumes a stream there that has not ended.
    pub(crate) consumes: bool,
}

/// Returns what repairs the loss.
pub(crate) fn remedy(stake: Stake) -> Remedy {
    match stake {
        Stake { consumes: true, .. } | Stake { recovery: Recovery::Restart, stepped: true, .. } => Remedy::Again,
        Stake { recovery: Recovery::Replay, .. } => Remedy::Rebuild,
        Stake { recovery: Recovery::Redo | Recovery::Restart, .. } => Remedy::Resend,
    }
}

impl WalkerState {
    /// Does what is needed after a node's incarnation was found to be another one, or none for good. Where the request
    /// has nothing under way this waits: it may need the node no more, and its next step there looks again.
    pub(crate) fn replaced(&mut self, node: NodeIx) -> Outcome {
        match self.routes.route(node) {
            Route::Starting => Ok(()),
            Route::Live(_, incarnation) => {
                for at in self.slots.on(node) {
                    if self.slots.at(at).met == Some(incarnation) || !self.waits_for(at) {
                        continue;
                    }
                    let slot = self.slots.at(at);
                    slot.met = Some(incarnation);
                    let stake = Stake {
                        recovery: self.served.bindings()[at].recovery,
                        stepped: slot.stepped,
                        consumes: self.streams.consumes(&self.served, at),
                    };
                    match remedy(stake) {
                        Remedy::Again => return self.again(),
                        Remedy::Rebuild => self.slots.at(at).lose(),
                        Remedy::Resend => {}
                    }
                    self.resend(at);
                }
                Ok(())
            }
            Route::Down(why) => {
                let slots = self.slots.on(node);
                let Some(&at) = slots.iter().find(|at| self.waits_for(**at)) else { return Ok(()) };
                if self.served.pick(at, self.key, &self.routes).is_ok() {
                    return self.again();
                }
                Err(self.down(at, &why))
            }
        }
    }

    /// Returns whether the request has something under way at a binding: a step, or a stream that it consumes there.
    fn waits_for(&self, at: usize) -> bool {
        self.flights.any_of_slot(at) || self.streams.consumes(&self.served, at)
    }

    /// Returns the failure of a request that needs a node which is down.
    pub(crate) fn down(&self, slot: usize, why: &str) -> Failure {
        let node = &self.served.bindings()[slot].node;
        Failure::new(FailureKind::Unavailable, format!("node {node} is down: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(recovery: Recovery, stepped: bool, consumes: bool, expected: Remedy) {
        let stake = Stake { recovery, stepped, consumes };
        assert_eq!(remedy(stake), expected, "{stake:?}");
    }

    #[test]
    fn the_cheapest_remedy_that_repairs_the_loss() {
        check(Recovery::Redo, true, false, Remedy::Resend);
        check(Recovery::Redo, true, true, Remedy::Again);
        check(Recovery::Replay, true, false, Remedy::Rebuild);
        check(Recovery::Replay, false, true, Remedy::Again);
        check(Recovery::Restart, true, false, Remedy::Again);
        check(Recovery::Restart, false, false, Remedy::Resend);
    }
}
