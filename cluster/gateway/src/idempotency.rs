//! Requests whose ids clients chose: the same id, while it runs, attaches to the running request and never runs twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use mstar_contract::{Emission, Summary};
use tokio::sync::watch;

use crate::ApiError;

/// How a request ended, for those who attached to it.
pub type Terminal = Result<(Arc<[Emission]>, Summary), ApiError>;

type Ends = BTreeMap<String, watch::Receiver<Option<Terminal>>>;

/// The requests with chosen ids that run now.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Ends>>);

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
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = ends.get(id) {
            return Claim::Attached(Attachment(end.clone()));
        }
        let (end, receiver) = watch::channel(None);
        ends.insert(id.to_owned(), receiver);
        Claim::First(Owner { id: id.to_owned(), running: self.clone(), end })
    }

    /// Returns how many run.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.end.send_if_modified(|end| {
            let lost = end.is_none();
            if lost {
                let status = StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST);
                *end = Some(Err(ApiError::new(status, "cancelled", "the client that ran this request went away")));
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
        assert!(attached.end().await.is_ok());
        assert!(running.is_empty());
        assert!(matches!(running.claim("a"), Claim::First(_)));
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
