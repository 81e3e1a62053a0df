//! What a request has produced for its client, and what of it the client has already, counted in bytes. A request
//! that runs again produces the same bytes, though perhaps cut differently; what was given before is skipped. Pure.

use std::collections::VecDeque;

use mstar_contract::{ClientEvent, Emission, Value};
use mstar_graph::{Modality, Port, StepIx};

use crate::client::ClientSink;

/// The emissions of a request.
#[derive(Debug, Default)]
pub(crate) struct Emissions {
    lanes: Vec<Lane>,
    /// Produced, not yet with the client: it is behind. With the partition that produced it.
    held: VecDeque<(u16, Emission)>,
}

/// The bytes of one modality from one output. Outputs are kept apart because two of them may interleave differently
/// when the request runs again.
#[derive(Debug)]
struct Lane {
    partition: u16,
    step: StepIx,
    modality: Modality,
    port: Port,
    /// Given to the client, or held for it, by any attempt.
    given: u64,
    /// Produced by this attempt.
    produced: u64,
}

/// Where an emission comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) partition: u16,
    pub(crate) step: StepIx,
}

// --- impl Emissions ---

impl Emissions {
    /// Takes what a step produced, holds what of it is new, and returns that.
    pub(crate) fn produce(&mut self, from: Origin, emission: Emission) -> Option<&Value> {
        let Emission { modality, port, value } = emission;
        let lane = self.lane(from, modality, &port);
        let bytes = value.byte_len();
        let skip = (lane.given - lane.produced).min(bytes);
        let seen = bytes > 0 && skip == bytes;
        lane.produced += bytes;
        lane.given = lane.given.max(lane.produced);
        if seen {
            return None;
        }
        let value = value.skip_bytes(skip)?;
        self.held.push_back((from.partition, Emission { modality, port, value }));
        self.held.back().map(|(_, emission)| &emission.value)
    }

    /// Hands over as much as the client has room for.
    pub(crate) fn flush(&mut self, sink: &ClientSink) {
        while let Some((partition, emission)) = self.held.pop_front() {
            if let Err(emission) = sink.emit(emission) {
                self.held.push_front((partition, emission));
                return;
            }
        }
    }

    /// Returns whether something of a partition waits for the client.
    pub(crate) fn holds(&self, partition: u16) -> bool {
        self.held.iter().any(|(from, _)| *from == partition)
    }

    /// Returns how many emissions wait for the client.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Begins a new attempt: all that was given is skipped when it comes again.
    pub(crate) fn again(&mut self) {
        for lane in &mut self.lanes {
            lane.produced = 0;
        }
    }

    /// Ends the request for its client, dropping what waits.
    pub(crate) fn end(&mut self, sink: &ClientSink, event: ClientEvent) {
        self.held.clear();
        sink.end(event);
    }

    fn lane(&mut self, from: Origin, modality: Modality, port: &Port) -> &mut Lane {
        let Origin { partition, step } = from;
        let is_it = |lane: &Lane| {
            lane.step == step && lane.partition == partition && lane.modality == modality && lane.port == *port
        };
        let at = self.lanes.iter().position(is_it).unwrap_or_else(|| {
            self.lanes.push(Lane { partition, step, modality, port: port.clone(), given: 0, produced: 0 });
            self.lanes.len() - 1
        });
        &mut self.lanes[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(step: u32) -> Origin {
        Origin { partition: 0, step: serde_json::from_value(serde_json::json!(step)).unwrap() }
    }

    fn say(emissions: &mut Emissions, step: u32, text: &str) -> String {
        let emission = Emission { modality: Modality::Text, port: "text".into(), value: Value::text(text) };
        emissions.produce(origin(step), emission);
        let held = emissions.held.drain(..);
        held.map(|(_, emission)| emission.value.as_text().unwrap().to_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn what_the_client_has_is_skipped_however_it_is_cut() {
        let mut emissions = Emissions::default();
        assert_eq!(say(&mut emissions, 0, "hel"), "hel");
        assert_eq!(say(&mut emissions, 0, "lo "), "lo ");
        emissions.again();
        assert_eq!(say(&mut emissions, 0, "hello"), "");
        assert_eq!(say(&mut emissions, 0, " world"), "world");
        emissions.again();
        assert_eq!(say(&mut emissions, 0, "hello world!"), "!");
    }

    #[test]
    fn outputs_are_counted_apart() {
        let mut emissions = Emissions::default();
        say(&mut emissions, 0, "abc");
        say(&mut emissions, 1, "x");
        emissions.again();
        assert_eq!(say(&mut emissions, 1, "xy"), "y");
        assert_eq!(say(&mut emissions, 0, "abcd"), "d");
    }
}
