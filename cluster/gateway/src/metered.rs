//! A request's body as it comes: bounded in bytes, counted against the budget, and no slower than allowed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, Sleep};

use crate::budget::{BodyBudget, Held};
use crate::{ApiError, Limits};

/// Why no more of a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It is larger than a body may be.
    #[error("the body is too large")]
    TooLarge,
    /// All bodies together are.
    #[error("too many bytes are in memory")]
    Short,
    /// It comes too slowly.
    #[error("the body comes too slowly")]
    Stalled,
}

/// What whoever reads a body knows of it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    held: Held,
    /// Bytes that may yet come.
    room: usize,
    fault: Option<Fault>,
}

/// The body's bytes.
pub(crate) struct Metered {
    inner: BodyDataStream,
    meter: Meter,
    stall: Duration,
    /// The end of the span of time in which [`PROGRESS`] is due.
    span: Pin<Box<Sleep>>,
    came: usize,
}

/// What must come of a body in every span of time that it is waited for.
const PROGRESS: usize = 4 << 10;

// --- impl Fault ---

impl Fault {
    /// Returns what the client is told.
    pub(crate) fn error(self, limits: &Limits, budget: &BodyBudget) -> ApiError {
        let (status, code, message) = match self {
            Fault::TooLarge => {
                let message = format!("is larger than {} bytes, the limit of this deployment", limits.body_bytes);
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            Fault::Short => {
                let (taken, total) = (budget.taken(), budget.total());
                let message = format!("finds no room: requests have {taken} of {total} bytes already");
                (StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
            }
            Fault::Stalled => {
                let message = format!("came at less than {PROGRESS} bytes in {:?}", limits.body_stall);
                (StatusCode::REQUEST_TIMEOUT, "deadline", message)
            }
        };
        ApiError::new(status, code, message).at("body")
    }
}

// --- impl Meter ---

impl Meter {
    /// Returns why the body ended before its time, if it was for a reason of ours.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.reading().fault
    }

    /// Returns what the body has taken of the budget, once it was read.
    pub(crate) fn into_held(self) -> Arc<Held> {
        let mut reading = self.reading();
        let nothing = reading.held.budget().share();
        Arc::new(std::mem::replace(&mut reading.held, nothing))
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize) -> Result<(), Fault> {
        let mut reading = self.reading();
        let Some(room) = reading.room.checked_sub(bytes) else { return Err(Fault::TooLarge) };
        reading.room = room;
        if reading.held.take(bytes) { Ok(()) } else { Err(Fault::Short) }
    }
}

// --- impl Metered ---

impl Metered {
    /// Begins to read a body.
    pub(crate) fn new(body: Body, limits: &Limits, budget: &BodyBudget) -> (Self, Meter) {
        let reading = Reading { held: budget.share(), room: limits.body_bytes, fault: None };
        let meter = Meter(Arc::new(Mutex::new(reading)));
        let stall = limits.body_stall;
        let (inner, span) = (body.into_data_stream(), Box::pin(tokio::time::sleep(stall)));
        (Self { inner, meter: meter.clone(), stall, span, came: 0 }, meter)
    }

    fn fail(&self, fault: Fault) -> axum::BoxError {
        let mut reading = self.meter.reading();
        reading.fault = Some(fault);
        // Nothing of it will be used.
        reading.held = reading.held.budget().share();
        fault.into()
    }

    /// Looks whether enough came while the body was waited for.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(self.span.as_mut().poll(cx));
            if self.came < PROGRESS {
                return Poll::Ready(());
            }
            self.came = 0;
            self.span.as_mut().reset(Instant::now() + self.stall);
        }
    }
}

impl Stream for Metered {
    type Item = Result<Bytes, axum::BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.inner).poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.came += bytes.len();
                let taken = self.meter.take(bytes.len());
                Poll::Ready(Some(taken.map(|()| bytes).map_err(|fault| self.fail(fault))))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                std::task::ready!(self.poll_stalled(cx));
                Poll::Ready(Some(Err(self.fail(Fault::Stalled))))
            }
        }
    }
}
