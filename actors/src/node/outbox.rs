//! What a node's steps put into streams and the consumer has no room for yet. A step whose items have not all left is
//! not done. Pure.

use std::collections::VecDeque;

use mstar_contract::{RequestKey, Value, WorkId};
use mstar_graph::StreamIx;
use smallvec::SmallVec;

use crate::ids::IdMap;
use crate::messages::{Items, NodeIx, StreamOutput};

/// The streams that a node feeds, by request. Of a request only the latest attempt is known.
#[derive(Debug)]
pub(crate) struct Outbox {
    node: NodeIx,
    requests: IdMap<u64, Lanes>,
}

#[derive(Debug)]
struct Lanes {
    attempt: u32,
    lanes: SmallVec<[Lane; 1]>,
}

#[derive(Debug)]
struct Lane {
    stream: StreamIx,
    to: NodeIx,
    credit: u64,
    /// Items before this one are not kept by the consumer any more; unknown to an incarnation that came in later.
    consumed: Option<u64>,
    /// Sequence number of the first pending item.
    next: u64,
    pending: VecDeque<Value>,
    /// The step that waits for the pending items to leave.
    work: WorkId,
}

/// What is to be sent, and the steps of which a stream's items have now all left, once per stream.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    pub(crate) runs: SmallVec<[(NodeIx, Items); 1]>,
    pub(crate) left: SmallVec<[WorkId; 1]>,
}

// --- impl Outbox ---

impl Outbox {
    pub(crate) fn new(node: NodeIx) -> Self {
        Self { node, requests: IdMap::default() }
    }

    /// Takes the items that a step put into a stream. Returns what may be sent at once.
    pub(crate) fn put(&mut self, key: RequestKey, work: WorkId, output: &StreamOutput, items: Vec<Value>) -> Sending {
        let lanes =
            self.requests.entry(key.id).or_insert_with(|| Lanes { attempt: key.attempt, lanes: SmallVec::new() });
        if lanes.attempt != key.attempt {
            *lanes = Lanes { attempt: key.attempt, lanes: SmallVec::new() };
        }
        let at = lanes.lanes.iter().position(|lane| lane.stream == output.stream).unwrap_or_else(|| {
            lanes.lanes.push(Lane::new(output, work));
            lanes.lanes.len() - 1
        });
        let lane = &mut lanes.lanes[at];
        if lane.next != output.next {
            *lane = Lane::new(output, work);
        }
        lane.work = work;
        let mut sending = Sending::default();
        if lane.pending.is_empty() && items.len() <= lane.allowed() {
            lane.send_all(self.node, key, items, &mut sending);
            return sending;
        }
        lane.pending.extend(items);
        lane.send(self.node, key, &mut sending);
        if lane.consumed.is_none() && !lane.pending.is_empty() {
            let ask = Items { key, stream: lane.stream, from: self.node, first: lane.next, items: Vec::new() };
            sending.runs.push((lane.to, ask));
        }
        sending
    }

    /// Notes that the consumer does not keep the items before `consumed` any more. Returns what may be sent now.
    pub(crate) fn credit(&mut self, key: RequestKey, stream: StreamIx, consumed: u64) -> Sending {
        let mut sending = Sending::default();
        let lanes = self.requests.get_mut(&key.id).filter(|lanes| lanes.attempt == key.attempt);
        let lane = lanes.and_then(|lanes| lanes.lanes.iter_mut().find(|lane| lane.stream == stream));
        if let Some(lane) = lane {
            lane.consumed = lane.consumed.max(Some(consumed));
            if !lane.pending.is_empty() {
                lane.send(self.node, key, &mut sending);
            }
        }
        sending
    }

    /// Forgets an attempt and all before it.
    pub(crate) fn retire(&mut self, key: RequestKey) {
        if self.requests.get(&key.id).is_some_and(|lanes| lanes.attempt <= key.attempt) {
            self.requests.remove(&key.id);
        }
    }

    /// Returns how many items wait.
    pub(crate) fn held(&self) -> usize {
        self.requests.values().flat_map(|lanes| &lanes.lanes).map(|lane| lane.pending.len()).sum()
    }
}

// --- impl Lane ---

impl Lane {
    fn new(output: &StreamOutput, work: WorkId) -> Self {
        Self {
            stream: output.stream,
            to: output.to,
            credit: output.credit,
            consumed: (output.next == 0).then_some(0),
            next: output.next,
            pending: VecDeque::new(),
            work,
        }
    }

    /// Sends what the credit allows; without pending items left, the step's part in this stream is over.
    fn send(&mut self, from: NodeIx, key: RequestKey, sending: &mut Sending) {
        let count = self.allowed().min(self.pending.len());
        let items = self.pending.drain(..count).collect();
        self.send_all(from, key, items, sending);
    }

    fn send_all(&mut self, from: NodeIx, key: RequestKey, items: Vec<Value>, sending: &mut Sending) {
        let first = self.next;
        self.next += items.len() as u64;
        if !items.is_empty() {
            sending.runs.push((self.to, Items { key, stream: self.stream, from, first, items }));
        }
        if self.pending.is_empty() {
            sending.left.push(self.work);
        }
    }

    /// Returns how many items may be sent now.
    fn allowed(&self) -> usize {
        let allowed = self.consumed.map_or(0, |consumed| (consumed + self.credit).saturating_sub(self.next));
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RequestKey = RequestKey { id: 7, attempt: 0 };

    fn stream() -> StreamIx {
        serde_json::from_value(serde_json::json!(0)).unwrap()
    }

    fn output(next: u64) -> StreamOutput {
        StreamOutput { port: "out".into(), stream: stream(), to: NodeIx(9), next, credit: 4, copied: false }
    }

    fn values(count: usize) -> Vec<Value> {
        (0..count).map(|_| Value::text("x")).collect()
    }

    /// First number and length of each run, and how many steps are over.
    fn seen(sending: &Sending) -> (Vec<(u64, usize)>, usize) {
        (sending.runs.iter().map(|(_, run)| (run.first, run.items.len())).collect(), sending.left.len())
    }

    #[test]
    fn a_step_is_over_when_the_consumer_made_room_for_all_its_items() {
        let mut outbox = Outbox::new(NodeIx(1));
        assert_eq!(seen(&outbox.put(KEY, WorkId(1), &output(0), values(3))), (vec![(0, 3)], 1));
        assert_eq!(seen(&outbox.put(KEY, WorkId(2), &output(3), values(5))), (vec![(3, 1)], 0));
        assert_eq!(outbox.held(), 4);
        assert_eq!(seen(&outbox.credit(KEY, stream(), 2)), (vec![(4, 2)], 0));
        assert_eq!(seen(&outbox.credit(KEY, stream(), 1)), (vec![], 0), "credit never shrinks");
        assert_eq!(seen(&outbox.credit(KEY, stream(), 6)), (vec![(6, 2)], 1));
        assert_eq!(seen(&outbox.credit(KEY, stream(), 7)), (vec![], 0), "a step is over once");
    }

    #[test]
    fn a_step_without_items_is_over_at_once() {
        let mut outbox = Outbox::new(NodeIx(1));
        assert_eq!(seen(&outbox.put(KEY, WorkId(1), &output(6), values(0))), (vec![], 1));
    }

    #[test]
    fn a_new_incarnation_asks_before_it_sends() {
        let mut outbox = Outbox::new(NodeIx(1));
        assert_eq!(seen(&outbox.put(KEY, WorkId(1), &output(6), values(2))), (vec![(6, 0)], 0));
        assert_eq!(seen(&outbox.credit(KEY, stream(), 4)), (vec![(6, 2)], 1));
    }

    #[test]
    fn the_retired_send_nothing() {
        let mut outbox = Outbox::new(NodeIx(1));
        outbox.put(KEY, WorkId(1), &output(0), values(9));
        outbox.retire(KEY);
        assert_eq!(seen(&outbox.credit(KEY, stream(), 9)), (vec![], 0));
        assert_eq!(outbox.held(), 0);
    }
}
