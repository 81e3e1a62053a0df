//! Where a request is served: for each graph node the replica it sticks to, the incarnation it has met there, and the
//! journal of its sequence.

use std::sync::Arc;

use mstar_contract::{Journal, KvUse, Recovery, Request, StepParams};
use mstar_supervisor::Incarnation;
use smallvec::SmallVec;

use crate::messages::NodeIx;
use crate::served::Served;
use crate::walker::flight::Flight;
use crate::walker::journal::SequenceLog;

/// A request's places, by binding.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
}

/// A request's place at one graph node.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The replica, once something was sent there.
    pub(crate) node: Option<NodeIx>,
    /// The incarnation that knows what the request has done there; none when it met nobody alive.
    pub(crate) met: Option<Incarnation>,
    /// Whether a stream was opened there.
    pub(crate) opened: bool,
    /// Whether a step was sent there.
    pub(crate) stepped: bool,
    /// Whether its sequence must be rebuilt before it goes on.
    lost: bool,
    log: SequenceLog,
    params: Option<Arc<StepParams>>,
}

// --- impl Slots ---

impl Slots {
    pub(crate) fn new(served: &Served) -> Self {
        Self { slots: served.bindings().iter().map(|_| Slot::default()).collect() }
    }

    pub(crate) fn at(&mut self, slot: usize) -> &mut Slot {
        &mut self.slots[slot]
    }

    /// Returns the places at a node.
    pub(crate) fn on(&self, node: NodeIx) -> SmallVec<[usize; 2]> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.node == Some(node)).map(|(at, _)| at).collect()
    }

    /// Returns every node that something was sent to, each once.
    pub(crate) fn touched(&self) -> SmallVec<[NodeIx; 4]> {
        let mut nodes: SmallVec<[NodeIx; 4]> = self.slots.iter().filter_map(|slot| slot.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Notes a step that is done.
    pub(crate) fn record(&mut self, served: &Served, flight: &Flight, sampled: Option<u32>) {
        let slot = &mut self.slots[flight.slot];
        let Some(kv) = served.step(flight.ix).kv else { return };
        let binding = &served.bindings()[flight.slot];
        if binding.recovery == Recovery::Replay {
            let op = &binding.ops[usize::from(flight.step.op.0)].name;
            slot.log.record(kv, op, &flight.step.inputs, sampled);
        }
        slot.lost = false;
    }

    /// Forgets everything: the request runs again.
    pub(crate) fn forget(&mut self) {
        for slot in &mut self.slots {
            *slot = Slot { params: slot.params.take(), ..Slot::default() };
        }
    }
}

// --- impl Slot ---

impl Slot {
    /// Notes that the sequence is lost.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Returns what a step must bring so that a lost sequence is rebuilt before it.
    pub(crate) fn rebuild(&self, kv: Option<KvUse>) -> Option<Arc<Journal>> {
        if self.lost && kv == Some(KvUse::Extend) { self.log.rebuild() } else { None }
    }

    /// Returns what does not change between the request's steps here.
    pub(crate) fn params(&mut self, request: &Arc<Request>, label: impl FnOnce() -> u8) -> Arc<StepParams> {
        let make = || Arc::new(StepParams { request: Arc::clone(request), label: label() });
        Arc::clone(self.params.get_or_insert_with(make))
    }
}
