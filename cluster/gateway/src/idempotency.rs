//! The requests that run now, by id: no id runs twice. On the native endpoint the same id attaches to the running
//! request and gets its end, if it asks for the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use mstar_contract::{Emission, RequestId, Summary};
use tokio::sync::watch;

use crate::ApiError;
use crate::error::client_gone;
use crate::fingerprint::Fingerprint;

/// How a request ended, for those who attached to it.
pub(crate) type Terminal = Result<(Arc<[Emission]>, Summary), ApiError>;

/// The requests that run now.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    /// All of them.
    ids: BTreeSet<RequestId>,
    /// Those that others may attach to.
    ends: BTreeMap<String, End>,
}

struct End {
    receiver: watch::Receiver<Option<Terminal>>,
    /// What the request asks for.
    print: Fingerprint,
    attached: usize,
}

/// A request's entry among those that run; dropped, it runs no more.
pub struct Entry {
    id: RequestId,
    running: Running,
}

/// What a client's id led to.
pub(crate) enum Claim {
    /// Nobody runs it: run it, and tell the end.
    First(Owner),
    /// It runs: wait for its end.
    Attached(Attachment),
}

/// Runs a request that others may attach to. Dropped without an end, it tells them that it was cancelled.
pub(crate) struct Owner {
    id: String,
    running: Running,
    end: watch::Sender<Option<Terminal>>,
}

/// Waits for the end of a request that another runs.
pub(crate) struct Attachment(watch::Receiver<Option<Terminal>>);

impl Running {
    /// Claims an id for a request; refused while one runs that asks for something else.
    pub(crate) fn claim(&self, id: &str, print: Fingerprint) -> Result<Claim, ApiError> {
        let mut table = self.table();
        if let Some(end) = table.ends.get_mut(id) {
            if let Some(field) = end.print.differs(&print) {
                let message = format!("request_id {id:?} is that of a running request with another {field}");
                return Err(ApiError::new(StatusCode::CONFLICT, "request_id_reused", message).at("request_id"));
            }
            end.attached += 1;
            return Ok(Claim::Attached(Attachment(end.receiver.clone())));
        }
        let (end, receiver) = watch::channel(None);
        table.ends.insert(id.to_owned(), End { receiver, print, attached: 0 });
        Ok(Claim::First(Owner { id: id.to_owned(), running: self.clone(), end }))
    }

    /// Enters a request, unless one of its id runs.
    pub fn enter(&self, id: &RequestId) -> Option<Entry> {
        let entered = self.table().ids.insert(Arc::clone(id));
        entered.then(|| Entry { id: Arc::clone(id), running: self.clone() })
    }

    /// Returns whether a request runs.
    pub fn has(&self, id: &str) -> bool {
        self.table().ids.contains(id)
    }

    /// Returns how many have attached to the running request of this id.
    pub fn attached(&self, id: &str) -> usize {
        self.table().ends.get(id).map_or(0, |end| end.attached)
    }

    /// Returns how many run.
    pub fn len(&self) -> usize {
        self.table().ids.len()
    }

    /// Returns whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.table().ids.remove(&self.id);
    }
}

impl Owner {
    /// Tells the end to everybody attached.
    pub(crate) fn finish(self, end: Terminal) {
        self.end.send_replace(Some(end));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.running.table().ends.remove(&self.id);
        self.end.send_if_modified(|end| {
            let lost = end.is_none();
            if lost {
                let message = "the client that ran this request went away";
                *end = Some(Err(ApiError::new(client_gone(), "cancelled", message)));
            }
            lost
        });
    }
}

impl Attachment {
    /// Waits for the end. The running request has a deadline, so this has one too.
    pub(crate) async fn end(mut self) -> Terminal {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(|| Err(gone())),
            Err(_) => Err(gone()),
        }
    }
}

fn gone() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request ended without a result")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Form;

    fn asks(text: &str) -> Fingerprint {
        Fingerprint::of(&Form { fields: BTreeMap::from([("text".to_owned(), vec![text.to_owned()])]), files: vec![] })
    }

    fn first(running: &Running, text: &str) -> Owner {
        let Ok(Claim::First(owner)) = running.claim("a", asks(text)) else { panic!("should be first") };
        owner
    }

    fn attached(running: &Running, text: &str) -> Attachment {
        let Ok(Claim::Attached(attached)) = running.claim("a", asks(text)) else { panic!("should attach") };
        attached
    }

    #[tokio::test]
    async fn a_second_claim_gets_the_first_ones_end_and_a_third_runs_anew() {
        let running = Running::default();
        let (owner, attached) = (first(&running, "x"), attached(&running, "x"));
        owner.finish(Ok((Arc::from([]), Summary::default())));
        assert_eq!(running.attached("a"), 0);
        assert!(attached.end().await.is_ok());
        first(&running, "y");
    }

    #[test]
    fn who_asks_for_something_else_is_refused() {
        let running = Running::default();
        let _owner = first(&running, "x");
        let error = running.claim("a", asks("y")).err().unwrap();
        assert_eq!((error.status, error.param.as_deref()), (StatusCode::CONFLICT, Some("request_id")));
        assert!(error.message.ends_with("with another text"), "{error}");
        assert_eq!(running.attached("a"), 0);
    }

    #[test]
    fn an_id_runs_once_at_a_time() {
        let running = Running::default();
        let entry = running.enter(&"a".into()).unwrap();
        assert!(running.enter(&"a".into()).is_none() && running.has("a") && running.len() == 1);
        drop(entry);
        assert!(running.enter(&"a".into()).is_some() && running.is_empty());
    }

    #[tokio::test]
    async fn an_owner_that_vanishes_tells_the_attached() {
        let running = Running::default();
        let (owner, attached) = (first(&running, "x"), attached(&running, "x"));
        drop(owner);
        assert_eq!(attached.end().await.unwrap_err().code, "cancelled");
    }
}
