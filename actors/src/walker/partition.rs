//! Partitions of a request: each takes walks with a cursor. Their commands become steps, emissions and kept values.

use std::sync::Arc;

use mstar_contract::{Emission, Failure, FailureKind, In, NextWalk, RowOutput, Value};
use mstar_graph::{
    Command, Commands, Cursor, Done, Fire, Graph, Input, KeptName, PartitionName, Port, StepIx, StreamIx, WalkName,
};
use tokio::time::Instant;
use tracing::Span;

use crate::faults::{AFTER_EMIT, pass};
use crate::messages::{NodeIx, NodeMsg, Step, StepId, StreamOutput};
use crate::routes::Routes;
use crate::served::{Served, partition_of};
use crate::snapshot::PartitionPosition;
use crate::trace::{self, StepLabels};
use crate::walker::draw::draw;
use crate::walker::emission::Origin;
use crate::walker::flight::{Flight, Flights};
use crate::walker::{Outcome, WalkerState, complaint};

/// A partition under way.
pub(crate) struct Partition {
    ix: u16,
    name: PartitionName,
    walk: WalkName,
    /// Walks it took before.
    number: u16,
    cursor: Cursor<Value>,
    /// The graph's index of the walk's first step.
    first_step: usize,
    /// Steps held back until the client has taken what the partition emitted.
    held: Vec<Fire<Value>>,
    /// Kept open as long as the walk.
    _span: Span,
    trace: mstar_contract::TraceContext,
}

/// The streams of a request.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<StreamState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamState {
    /// Both its partitions take part.
    open: bool,
    /// Sequence number of the next item.
    next: u64,
    /// Its last chunk was consumed, or its consumer wants no more.
    ended: bool,
}

// --- impl Partition ---

impl Partition {
    /// Returns where it stands, for people.
    pub(crate) fn position(&self, flights: &Flights, routes: &Routes) -> PartitionPosition {
        let position = self.cursor.position();
        let graph = self.cursor.graph();
        let mine = flights.iter().filter(|flight| flight.step.step.partition == self.ix);
        let place = |flight: &Flight| (graph.step(flight.ix).name.clone(), routes.name(flight.node).to_owned());
        PartitionPosition {
            partition: self.name.clone(),
            walk: self.walk.clone(),
            loops: position.loops.into_iter().map(|(name, iteration, _)| (name, iteration)).collect(),
            steps: mine.map(place).collect(),
        }
    }
}

// --- impl Streams ---

impl Streams {
    pub(crate) fn new(served: &Served) -> Self {
        Self { streams: served.graph().streams().map(|_| StreamState::default()).collect() }
    }

    /// Opens the streams whose partitions both take part.
    pub(crate) fn take_part<'a>(
        &mut self,
        graph: &Graph,
        served: &Served,
        partitions: impl Iterator<Item = &'a PartitionName>,
    ) {
        let part: Vec<u16> = partitions.map(|name| partition_of(graph, name)).collect();
        for (ix, _) in graph.streams() {
            let stream = served.stream(ix);
            self.streams[ix.index()].open = part.contains(&stream.from) && part.contains(&stream.to);
        }
    }

    pub(crate) fn sent(&mut self, stream: StreamIx, next: u64) {
        self.streams[stream.index()].next = next;
    }

    pub(crate) fn ended(&mut self, stream: StreamIx) {
        self.streams[stream.index()].ended = true;
    }

    /// Returns whether a binding consumes a stream that is open and not at its end.
    pub(crate) fn consumes(&self, served: &Served, slot: usize) -> bool {
        let open = served.graph().streams().filter(|(ix, _)| {
            let state = &self.streams[ix.index()];
            state.open && !state.ended
        });
        open.into_iter().any(|(ix, _)| served.stream(ix).consumer == slot)
    }
}

// --- impl WalkerState ---

impl WalkerState {
    /// Lets the consumers of all open streams expect them.
    pub(crate) fn open_streams(&mut self) -> Outcome {
        let graph = Arc::clone(self.served.graph());
        for (ix, stream) in graph.streams() {
            if !self.streams.streams[ix.index()].open {
                continue;
            }
            let consumer = self.served.stream(ix).consumer;
            let node = self.node_of(consumer)?;
            let open = NodeMsg::OpenStream { key: self.key, stream: ix, policy: stream.policy, at_end: stream.at_end };
            // A consumer that is away takes no stream: when it comes back, the request runs again.
            let slot = self.slots.at(consumer);
            if !slot.opened {
                (slot.opened, slot.met) = (true, self.routes.incarnation(node));
            }
            if let Some(met) = slot.met {
                self.routes.send_to(node, met, open);
            }
        }
        Ok(())
    }

    /// Takes a walk; the partition took `number` walks before.
    pub(crate) fn take_walk(&mut self, next: NextWalk, number: u16) -> Outcome {
        let NextWalk { partition, walk, inputs, limits } = next;
        let graph = Arc::clone(self.served.graph());
        let unknown = || Failure::new(FailureKind::Internal, format!("the plan names walk {walk}, which is not there"));
        let ix = graph.find_walk(walk.as_str()).ok_or_else(unknown)?;
        let kept = |name: &KeptName| self.kept.get(name).cloned();
        let limit = |name: &str| limits.iter().find(|(known, _)| known == name).map(|(_, limit)| *limit);
        let started = Cursor::start(&graph, ix, inputs, &kept, &limit);
        let (cursor, commands) = started.map_err(|error| complaint(&error))?;
        let span = trace::walk(self.trace, walk.as_str(), partition.as_str());
        let trace = trace::context(&span, self.trace);
        let at = partition_of(&graph, &partition);
        let first_step = graph.walk_steps(ix).next().map_or(0, StepIx::index);
        let held = Vec::new();
        let started = Partition { ix: at, name: partition, walk, number, cursor, first_step, held, _span: span, trace };
        self.partitions[usize::from(at)] = Some(started);
        self.carry_out(at, commands)
    }

    /// Feeds a step's outcome into its cursor.
    pub(crate) fn land(&mut self, flight: Flight, output: RowOutput, stream_ended: bool) -> Outcome {
        let at = flight.step.step.partition;
        let Some(partition) = &mut self.partitions[usize::from(at)] else { return Ok(()) };
        let graph = Arc::clone(self.served.graph());
        let step = graph.step(flight.ix);
        let mut done = Done { stream_ended, ..Done::new(flight.firing) };
        done.outputs = output.outputs.into_iter().collect();
        for stop in output.stops {
            // A graph may wire an op's stop to a loop of another name.
            let wired = step.stopped_by(stop.as_str()).next().is_some();
            done.signals.push(Port::from(stop.as_str()));
            if !wired {
                done.stops.push(stop);
            }
        }
        let commands = partition.cursor.done(done).map_err(|error| complaint(&error))?;
        self.carry_out(at, commands)
    }

    /// Fires what was held back, of partitions whose emissions the client has taken.
    pub(crate) fn release_held(&mut self) -> Outcome {
        for at in 0..self.partitions.len() {
            let ix = u16::try_from(at).expect("invariant: few partitions");
            let Some(partition) = &mut self.partitions[at] else { continue };
            if partition.held.is_empty() || self.emissions.holds(ix) {
                continue;
            }
            let attempt = self.key.attempt;
            for fire in std::mem::take(&mut partition.held) {
                self.fire(ix, fire)?;
                if self.key.attempt != attempt {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, at: u16, commands: Commands<Value>) -> Outcome {
        let attempt = self.key.attempt;
        for command in commands {
            // A step may find its node replaced: then the request runs again, and this was of the attempt before.
            if self.key.attempt != attempt {
                return Ok(());
            }
            match command {
                Command::Fire(fire) if self.emissions.holds(at) => {
                    if let Some(partition) = &mut self.partitions[usize::from(at)] {
                        partition.held.push(fire);
                    }
                }
                Command::Fire(fire) => self.fire(at, fire)?,
                // What the client did not ask for stays with us: walks are written once for all uses.
                Command::Emit { modality, .. } if !self.request.outputs.contains(&modality) => {}
                Command::Emit { step, port, modality, value } => {
                    let new =
                        self.emissions.produce(Origin { partition: at, step }, Emission { modality, port, value });
                    if let Some(audio) = new.and_then(Value::duration) {
                        self.playout.give(audio, Instant::now());
                    }
                    self.emissions.flush(&self.sink);
                    pass(&self.faults, AFTER_EMIT, &self.request.id);
                }
                Command::Keep { name, value } => {
                    self.kept.insert(name, value);
                }
                Command::Release { name } => {
                    self.kept.remove(&name);
                }
                Command::Finished { results, .. } => self.walk_over(at, results)?,
            }
        }
        Ok(())
    }

    /// Takes the walk that follows, or ends the partition and its streams.
    fn walk_over(&mut self, at: u16, results: Vec<(Port, Input<Value>)>) -> Outcome {
        let Some(partition) = self.partitions[usize::from(at)].take() else { return Ok(()) };
        for (port, result) in results {
            if let Input::One(value) = result {
                self.kept.insert(KeptName::from(port.as_str()), value);
            }
        }
        if let Some(next) = self.plan.next(&partition.name, &partition.walk, &self.kept) {
            // What a deployment serves was checked against what the plan told.
            if !self.plan.follows().contains(&next.walk) {
                let text = format!("the plan goes on with walk {}, of which it did not tell", next.walk);
                return Err(Failure::new(FailureKind::Internal, text));
            }
            return self.take_walk(next, partition.number + 1);
        }
        let graph = Arc::clone(self.served.graph());
        for (ix, _) in graph.streams() {
            let stream = *self.served.stream(ix);
            let StreamState { open, next: items, ended } = self.streams.streams[ix.index()];
            let key = self.key;
            if stream.from == at && open {
                let node = self.node_of(stream.consumer)?;
                self.routes.send(node, NodeMsg::CloseStream { key, stream: ix, items });
            }
            if stream.to == at && open && !ended {
                let node = self.node_of(stream.consumer)?;
                self.routes.send(node, NodeMsg::AbandonStream { key, stream: ix });
                self.streams.ended(ix);
            }
        }
        Ok(())
    }

    fn fire(&mut self, at: u16, fire: Fire<Value>) -> Outcome {
        let Some(partition) = &self.partitions[usize::from(at)] else { return Ok(()) };
        let Fire { firing, step: ix, iteration, inputs } = fire;
        let (walk, parent) = (partition.number, partition.trace);
        let place = ix.index() - partition.first_step;
        let served = Arc::clone(&self.served);
        let binding = served.step(ix);
        let node = self.node_of(binding.slot)?;
        let mut stream_outputs = smallvec::SmallVec::new();
        for output in &binding.stream_outputs {
            let state = &self.streams.streams[output.stream.index()];
            if !state.open || state.ended {
                continue;
            }
            let (next, copied) = (state.next, output.copied);
            let to = self.node_of(served.stream(output.stream).consumer)?;
            let credit = served.graph().stream(output.stream).credit;
            stream_outputs.push(StreamOutput {
                port: output.port.clone(),
                stream: output.stream,
                to,
                next,
                credit,
                copied,
            });
        }
        let labels = StepLabels {
            node: self.routes.name(node),
            op: served.bindings()[binding.slot].ops[usize::from(binding.op.0)].name.as_str(),
            step: served.graph().step(ix).name.as_str(),
            iteration: iteration.innermost(),
            looped: binding.looped,
        };
        let span = trace::step(parent, &labels);
        let number = u32::try_from(firing.0).expect("invariant: a walk has fewer than 2^32 firings");
        let step = Step {
            key: self.key,
            step: StepId { partition: at, walk, firing: number },
            op: binding.op,
            inputs: inputs.into_iter().map(|(port, input)| (port, fed(input))).collect(),
            stream_inputs: binding.stream_inputs.clone(),
            stream_outputs,
            params: self.slots.at(binding.slot).params(&self.request, || served.label(binding.slot)),
            draw: draw(self.request.seed, at, walk, place, iteration.path()),
            rebuild: None,
            due: self.playout.due(),
            trace: trace::context(&span, parent),
        };
        self.flights.add(Flight { step, ix, firing, slot: binding.slot, node, sent: None, span });
        self.dispatch(binding.slot, node)
    }

    /// Sends what is in flight at a binding and was not sent, if its node is as the request knows it.
    fn dispatch(&mut self, at: usize, node: NodeIx) -> Outcome {
        let live = self.routes.incarnation(node);
        let slot = self.slots.at(at);
        if slot.met.is_none() && !slot.opened && !slot.stepped {
            slot.met = live;
        }
        let replaced = if live.is_some() { slot.met != live } else { self.routes.is_down(node) };
        if replaced {
            return self.replaced(node);
        }
        self.resend(at);
        Ok(())
    }

    /// Sends what is in flight at a binding and not with the incarnation that the request knows.
    pub(crate) fn resend(&mut self, at: usize) {
        let slot = self.slots.at(at);
        let Some(met) = slot.met else { return };
        for flight in self.flights.of_slot(at) {
            if flight.sent == Some(met) {
                continue;
            }
            flight.step.rebuild = slot.rebuild(self.served.step(flight.ix).kv);
            let sent = self.routes.send_to(flight.node, met, NodeMsg::Step(flight.step.clone()));
            if sent {
                (slot.stepped, flight.sent) = (true, Some(met));
            }
        }
    }

    /// Returns the node that serves a binding for this request.
    fn node_of(&mut self, at: usize) -> Result<NodeIx, Failure> {
        if let Some(node) = self.slots.at(at).node {
            return Ok(node);
        }
        let node = self.served.pick(at, self.key, &self.routes).map_err(|why| self.down(at, &why))?;
        self.slots.at(at).node = Some(node);
        Ok(node)
    }
}

fn fed(input: Input<Value>) -> In {
    match input {
        Input::One(value) => In::One(value),
        Input::All(values) => In::All(values),
        Input::Signal => In::Signal,
    }
}
