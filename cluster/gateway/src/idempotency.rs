//! The requests that run now, by id: no id runs twice. On the native endpoint the same id attaches to the running
//! request and gets its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use mstar_contract::{Emission, RequestId, Summary};
use tokio::sync::watch;

use crate::ApiError;
use crate::error::client_gone;

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
    attached: usize,
}

/// A request's entry among those that run; dropped, it runs no more.
pub struct Entry {
    id: RequestId,
    running: Running,
}

/// What a client's id led to.
pub enum Claim {
    /// Nobody runs it: run it, and tell the end.
    First(Owner),
    /// It runs: wait for its end.
    Attached(Attachment),
}

/// Runs a request that others may attach to. Dropped without an end, it tells them that it was cancelled.
pub struct Owner {
    id: String,
    running: Running,
    end: watch::Sender<Option<Terminal>>,
}

/// Waits for the end of a request that another runs.
pub struct Attachment(watch::Receiver<Option<Terminal>>);

impl Running {
    /// Claims an id.
    pub fn claim(&self, id: &str) -> Claim {
        let mut table = self.table();
        if let Some(end) = table.ends.get_mut(id) {
            end.attached += 1;
            return Claim::Attached(Attachment(end.receiver.clone()));
        }
        let (end, receiver) = watch::channel(None);
        table.ends.insert(id.to_owned(), End { receiver, attached: 0 });
        Claim::First(Owner { id: id.to_owned(), running: self.clone(), end })
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
    pub fn finish(self, end: Terminal) {
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
    pub async fn end(mut self) -> Terminal {
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

    #[tokio::test]
    async fn a_second_claim_gets_the_first_ones_end_and_a_third_runs_anew() {
        let running = Running::default();
        let Claim::First(owner) = running.claim("a") else { panic!("should be first") };
        let Claim::Attached(attached) = running.claim("a") else { panic!("should attach") };
        owner.finish(Ok((Arc::from([]), Summary::default())));
        assert_eq!(running.attached("a"), 0);
        assert!(attached.end().await.is_ok());
        assert!(matches!(running.claim("a"), Claim::First(_)));
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
        let Claim::First(owner) = running.claim("a") else { panic!("should be first") };
        let Claim::Attached(attached) = running.claim("a") else { panic!("should attach") };
        drop(owner);
        assert_eq!(attached.end().await.unwrap_err().code, "cancelled");
    }
}
