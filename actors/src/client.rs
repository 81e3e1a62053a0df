//! The channel from a walker to its client: at most `credit` emissions under way, and always a slot for the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mstar_contract::{ClientEvent, Emission, Failure, FailureKind, RequestId, RequestKey, TraceContext};
use mstar_graph::ModelId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::messages::{CancelReason, IngressMsg, WalkerMsg, Whom};
use crate::metrics::FIRST_OUTPUT_SECONDS;
use crate::routes::Routes;

/// The walker's end.
#[derive(Clone, Debug)]
pub struct ClientSink {
    sender: mpsc::Sender<ClientEvent>,
    flow: Arc<Flow>,
}

/// The client's end. Dropping it before the last event cancels the request.
#[derive(Debug)]
pub struct ClientStream {
    key: RequestKey,
    id: RequestId,
    trace: TraceContext,
    receiver: mpsc::Receiver<ClientEvent>,
    flow: Arc<Flow>,
    routes: Arc<Routes>,
    over: bool,
}

#[derive(Debug)]
struct Flow {
    model: ModelId,
    opened: Instant,
    credit: u64,
    given: AtomicU64,
    taken: AtomicU64,
    stalled: AtomicBool,
    ended: AtomicBool,
}

/// Opens the channel of a request. `credit` is at least 1.
pub(crate) fn channel(
    routes: &Arc<Routes>,
    key: RequestKey,
    id: RequestId,
    model: ModelId,
    credit: usize,
    trace: TraceContext,
) -> (ClientSink, ClientStream) {
    let credit = credit.max(1);
    let (sender, receiver) = mpsc::channel(credit + 1);
    let flow = Arc::new(Flow {
        model,
        opened: Instant::now(),
        credit: credit as u64,
        given: AtomicU64::new(0),
        taken: AtomicU64::new(0),
        stalled: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    });
    let sink = ClientSink { sender, flow: Arc::clone(&flow) };
    (sink, ClientStream { key, id, trace, receiver, flow, routes: Arc::clone(routes), over: false })
}

// --- impl ClientSink ---

impl ClientSink {
    /// Hands over an emission, or gives it back when the client is behind; the walker then hears of
    /// [`WalkerMsg::ClientTook`].
    pub fn emit(&self, emission: Emission) -> Result<(), Emission> {
        let flow = &self.flow;
        if flow.full() {
            flow.stalled.store(true, Ordering::SeqCst);
            // The client may have taken the last one just before it could see the flag.
            if flow.full() {
                return Err(emission);
            }
        }
        if flow.given.fetch_add(1, Ordering::SeqCst) == 0 {
            let seconds = flow.opened.elapsed().as_secs_f64();
            metrics::histogram!(FIRST_OUTPUT_SECONDS, "model" => flow.model.as_str().to_owned()).record(seconds);
        }
        // A client that went away takes nothing: its stream has cancelled the request.
        let _ = self.sender.try_send(ClientEvent::Emitted(emission));
        Ok(())
    }

    /// Hands over the last event; only the first call counts.
    pub fn end(&self, event: ClientEvent) {
        if !self.flow.ended.swap(true, Ordering::SeqCst) {
            let _ = self.sender.try_send(event);
        }
    }

    /// Returns whether the last event was handed over.
    pub fn ended(&self) -> bool {
        self.flow.ended.load(Ordering::SeqCst)
    }
}

// --- impl ClientStream ---

impl ClientStream {
    /// Returns the key by which the process knows the request.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    /// Returns the id by which the client knows it.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the request's span; the trace that it came with where none is recorded.
    pub fn trace(&self) -> TraceContext {
        self.trace
    }

    /// Waits for the next event; nothing follows after `Done` or `Failed`. The request's deadline bounds the wait.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        if self.over {
            return None;
        }
        let event = self.receiver.recv().await;
        Some(self.took(event))
    }

    /// Returns the next event if it is there already.
    pub fn try_next(&mut self) -> Option<ClientEvent> {
        if self.over {
            return None;
        }
        match self.receiver.try_recv() {
            Ok(event) => Some(self.took(Some(event))),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(self.took(None)),
        }
    }

    fn took(&mut self, event: Option<ClientEvent>) -> ClientEvent {
        match event {
            Some(event @ ClientEvent::Emitted(_)) => {
                self.flow.taken.fetch_add(1, Ordering::SeqCst);
                if self.flow.stalled.swap(false, Ordering::SeqCst) {
                    self.routes.tell(self.key, WalkerMsg::ClientTook);
                }
                event
            }
            Some(event) => {
                self.over = true;
                event
            }
            None => {
                self.over = true;
                ClientEvent::Failed(Failure::new(FailureKind::Internal, "the request was lost"))
            }
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if self.over || self.flow.ended.load(Ordering::SeqCst) {
            return;
        }
        if let Some(ingress) = self.routes.ingress() {
            let _ = ingress.cast(IngressMsg::Cancel(Whom::Key(self.key), CancelReason::ClientGone));
        }
    }
}

// --- impl Flow ---

impl Flow {
    fn full(&self) -> bool {
        self.given.load(Ordering::SeqCst) - self.taken.load(Ordering::SeqCst) >= self.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mstar_contract::Value;
    use mstar_graph::Modality;

    fn emission(text: &str) -> Emission {
        Emission { modality: Modality::Text, port: "text".into(), value: Value::text(text) }
    }

    fn open(credit: usize) -> (ClientSink, ClientStream) {
        let routes = Routes::new(["n"]);
        let key = routes.next_key();
        channel(&routes, key, "r".into(), "m".into(), credit, TraceContext::default())
    }

    #[tokio::test]
    async fn the_end_has_a_slot_even_when_the_client_is_behind() {
        let (sink, mut stream) = open(2);
        sink.emit(emission("a")).unwrap();
        sink.emit(emission("b")).unwrap();
        assert!(sink.emit(emission("c")).is_err());
        sink.end(ClientEvent::Done(mstar_contract::Summary::default()));
        sink.end(ClientEvent::Failed(CancelReason::Asked.failure()));
        assert!(matches!(stream.next().await, Some(ClientEvent::Emitted(_))));
        assert!(matches!(stream.next().await, Some(ClientEvent::Emitted(_))));
        assert!(matches!(stream.next().await, Some(ClientEvent::Done(_))));
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_sink_that_vanishes_is_an_internal_failure_once() {
        let (sink, mut stream) = open(1);
        drop(sink);
        let Some(ClientEvent::Failed(failure)) = stream.next().await else { panic!("no failure") };
        assert_eq!(failure.kind, FailureKind::Internal);
        assert!(stream.next().await.is_none());
    }

    #[test]
    fn credit_comes_back_when_the_client_takes() {
        let (sink, mut stream) = open(1);
        sink.emit(emission("a")).unwrap();
        let back = sink.emit(emission("b")).unwrap_err();
        assert!(stream.try_next().is_some());
        assert!(stream.try_next().is_none());
        sink.emit(back).unwrap();
    }
}
