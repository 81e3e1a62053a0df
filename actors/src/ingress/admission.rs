//! Who runs, who waits, who is refused. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};

use mstar_contract::{Failure, FailureKind, RequestId, RequestKey};

use crate::ingress::IngressLimits;
use crate::messages::Whom;

/// The requests of an ingress. `Q` is what it keeps of one that waits, `R` of one that runs.
#[derive(Debug)]
pub(super) struct Admission<Q, R> {
    limits: IngressLimits,
    queue: VecDeque<(RequestKey, Q)>,
    running: BTreeMap<u64, R>,
    ids: HashMap<RequestId, u64>,
    draining: bool,
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

/// What came of a request that is to be ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<Q> {
    /// It waited; it is out of the queue.
    Queued(Q),
    /// It runs: its walker is to be told.
    Running(RequestKey),
    /// It has ended, or never was.
    Gone,
}

// --- impl Admission ---

impl<Q, R> Admission<Q, R> {
    pub(super) fn new(limits: IngressLimits) -> Self {
        let (queue, running, ids) = (VecDeque::new(), BTreeMap::new(), HashMap::new());
        Self { limits, queue, running, ids, draining: false, admitted: 0, refused: 0 }
    }

    /// Takes a request into the queue, or refuses it.
    pub(super) fn enqueue(&mut self, key: RequestKey, id: &RequestId, queued: Q) -> Result<(), Failure> {
        let refusal = if self.draining {
            Some(Failure::new(FailureKind::Overloaded, "the server is draining"))
        } else if self.ids.contains_key(id) {
            let failure = Failure::new(FailureKind::Invalid, format!("request {id} is being served already"));
            Some(Failure { field: Some("request_id".to_owned()), ..failure })
        } else if self.full() {
            let (running, waiting) = (self.running.len(), self.queue.len());
            let text = format!("{running} requests run and {waiting} wait");
            Some(Failure::new(FailureKind::Overloaded, text))
        } else {
            None
        };
        if let Some(failure) = refusal {
            self.refused += 1;
            return Err(failure);
        }
        self.ids.insert(id.clone(), key.id);
        self.queue.push_back((key, queued));
        Ok(())
    }

    /// Returns the next request that may run; [`Admission::runs`] must follow, or [`Admission::ended`].
    pub(super) fn next(&mut self) -> Option<(RequestKey, Q)> {
        if self.running.len() >= self.limits.max_running {
            return None;
        }
        self.queue.pop_front()
    }

    /// Notes that a request runs.
    pub(super) fn runs(&mut self, key: RequestKey, running: R) {
        self.admitted += 1;
        self.running.insert(key.id, running);
    }

    /// Notes that a request has ended.
    pub(super) fn ended(&mut self, key: RequestKey, id: &RequestId) -> Option<R> {
        if self.ids.get(id) == Some(&key.id) {
            self.ids.remove(id);
        }
        self.running.remove(&key.id)
    }

    /// Finds a request that is to be ended, and takes it out of the queue if it waits there.
    pub(super) fn find(&mut self, whom: &Whom) -> Found<Q> {
        let id = match whom {
            Whom::Key(key) => key.id,
            Whom::Id(id) => match self.ids.get(id) {
                Some(id) => *id,
                None => return Found::Gone,
            },
        };
        if self.running.contains_key(&id) {
            return Found::Running(RequestKey { id, attempt: 0 });
        }
        let at = self.queue.iter().position(|(key, _)| key.id == id);
        let Some((key, queued)) = at.and_then(|at| self.queue.remove(at)) else { return Found::Gone };
        self.ids.retain(|_, known| *known != key.id);
        Found::Queued(queued)
    }

    /// Takes everything out of the queue.
    pub(super) fn empty_queue(&mut self) -> Vec<Q> {
        let queued: Vec<_> = self.queue.drain(..).collect();
        self.ids.retain(|_, id| !queued.iter().any(|(key, _)| key.id == *id));
        queued.into_iter().map(|(_, queued)| queued).collect()
    }

    /// Admits nothing more.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    pub(super) fn draining(&self) -> bool {
        self.draining
    }

    /// Returns what runs.
    pub(super) fn running(&self) -> impl ExactSizeIterator<Item = (&u64, &R)> {
        self.running.iter()
    }

    /// Returns how many wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether nothing runs and nothing waits.
    pub(super) fn idle(&self) -> bool {
        self.running.is_empty() && self.queue.is_empty()
    }

    fn full(&self) -> bool {
        let free = self.limits.max_running.saturating_sub(self.running.len());
        self.queue.len() >= self.limits.max_queued + free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64) -> RequestKey {
        RequestKey { id, attempt: 0 }
    }

    fn admission() -> Admission<u64, ()> {
        Admission::new(IngressLimits { max_running: 2, max_queued: 1, ..IngressLimits::default() })
    }

    fn enqueue(admission: &mut Admission<u64, ()>, id: u64) -> Result<(), FailureKind> {
        let outcome = admission.enqueue(key(id), &format!("r{id}").into(), id).map_err(|failure| failure.kind);
        while let Some((key, _)) = admission.next() {
            admission.runs(key, ());
        }
        outcome
    }

    #[test]
    fn as_many_run_and_wait_as_the_limits_say() {
        let mut admission = admission();
        for id in 0..3 {
            enqueue(&mut admission, id).unwrap();
        }
        assert_eq!(enqueue(&mut admission, 3), Err(FailureKind::Overloaded));
        assert_eq!((admission.running().len(), admission.queued(), admission.refused), (2, 1, 1));
        admission.ended(key(0), &"r0".into());
        assert_eq!(admission.next(), Some((key(2), 2)));
    }

    #[test]
    fn one_id_is_served_once_at_a_time() {
        let mut admission = admission();
        enqueue(&mut admission, 0).unwrap();
        assert_eq!(enqueue(&mut admission, 0), Err(FailureKind::Invalid));
        admission.ended(key(0), &"r0".into());
        enqueue(&mut admission, 0).unwrap();
    }

    #[test]
    fn the_waiting_and_the_running_are_found_by_id_and_key() {
        let mut admission = admission();
        for id in 0..3 {
            enqueue(&mut admission, id).unwrap();
        }
        assert_eq!(admission.find(&Whom::Id("r1".into())), Found::Running(key(1)));
        assert_eq!(admission.find(&Whom::Key(key(2))), Found::Queued(2));
        assert_eq!(admission.find(&Whom::Key(key(2))), Found::Gone);
        assert_eq!(admission.find(&Whom::Id("r9".into())), Found::Gone);
        enqueue(&mut admission, 2).unwrap();
    }

    #[test]
    fn draining_refuses_what_is_new() {
        let mut admission = admission();
        enqueue(&mut admission, 0).unwrap();
        admission.drain();
        assert_eq!(enqueue(&mut admission, 1), Err(FailureKind::Overloaded));
        assert!(!admission.idle());
        admission.ended(key(0), &"r0".into());
        assert!(admission.idle());
    }
}
