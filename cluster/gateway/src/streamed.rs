//! Bodies that are written while a request runs. A body that its writer leaves unfinished breaks off, so that no
//! client takes a part for the whole.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use mstar_contract::ClientEvent;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::call::Call;

/// A piece of a body, or its end.
enum Piece {
    Bytes(Bytes),
    End,
}

/// Pieces of a body that is written while a request runs.
struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    state: State,
}

/// How far a body has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// It will break off; what was written before goes out first.
    Breaking,
    Ended,
}

/// Where a streamed body is written to. Dropped without [`BodyWriter::finish`], it breaks the body off.
pub(crate) struct BodyWriter {
    pieces: mpsc::Sender<Piece>,
    /// How long a client may take nothing before it counts as gone.
    stall: Duration,
}

/// The body ends before its time: the connection is cut, so that a client notices even if it ignores error events.
#[derive(Debug, thiserror::Error)]
#[error("the request failed after the answer had begun")]
struct Broken;

/// Pieces that may wait for a slow client. The walker's credit bounds what stands behind them.
const PIECES: usize = 4;

/// The end of an OpenAI event stream that went well.
pub(crate) const DONE_EVENT: &str = "data: [DONE]\n\n";

/// Returns a server-sent event with this data.
pub(crate) fn event(data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("invariant: what is sent has keys of text and can be written");
    format!("data: {data}\n\n")
}

/// Returns a response whose body `write` produces in a task of its own. The task ends with the body, or when the client
/// takes nothing of it for the time of `stall`.
pub(crate) fn streamed<F, W>(content_type: &'static str, stall: Duration, write: W) -> Response
where
    F: Future<Output = ()> + Send + 'static,
    W: FnOnce(BodyWriter) -> F,
{
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::spawn(write(BodyWriter { pieces: sender, stall }));
    let mut response = Response::new(Body::from_stream(Pieces { receiver, state: State::Open }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

// --- impl Pieces ---

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.state {
            State::Open => {}
            State::Breaking => {
                self.state = State::Ended;
                return Poll::Ready(Some(Err(Broken)));
            }
            State::Ended => return Poll::Ready(None),
        }
        match std::task::ready!(self.receiver.poll_recv(cx)) {
            Some(Piece::Bytes(bytes)) => Poll::Ready(Some(Ok(bytes))),
            Some(Piece::End) => {
                self.state = State::Ended;
                Poll::Ready(None)
            }
            None => {
                // A server flushes before it waits, but not before it breaks off: the error line would be lost.
                self.state = State::Breaking;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

// --- impl BodyWriter ---

impl BodyWriter {
    /// Writes a piece; false when the client is gone or takes nothing any more.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> bool {
        let sent = self.pieces.send(Piece::Bytes(piece.into()));
        matches!(tokio::time::timeout(self.stall, sent).await, Ok(Ok(())))
    }

    /// Ends the body well.
    pub(crate) async fn finish(self) {
        // The client may be gone already: then there is nobody to tell.
        let _ = tokio::time::timeout(self.stall, self.pieces.send(Piece::End)).await;
    }

    /// Waits for a request's next event; nothing when the client went away meanwhile.
    pub(crate) async fn next_of(&self, call: &mut Call) -> Option<ClientEvent> {
        tokio::select! {
            biased;
            next = call.next() => Some(next),
            () = self.pieces.closed() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn an_unfinished_body_breaks_off_and_a_finished_one_does_not() {
        let stall = Duration::from_secs(1);
        let body = streamed("text/plain", stall, |writer| async move {
            assert!(writer.send("a").await);
            writer.finish().await;
        });
        assert_eq!(body.into_body().collect().await.unwrap().to_bytes(), "a");
        let body = streamed("text/plain", stall, |writer| async move {
            writer.send("a").await;
        });
        assert!(body.into_body().collect().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_counts_as_gone() {
        let (sender, mut receiver) = mpsc::channel(PIECES);
        let writer = BodyWriter { pieces: sender, stall: Duration::from_secs(30) };
        for _ in 0..PIECES {
            assert!(writer.send("a").await);
        }
        assert!(!writer.send("a").await);
        receiver.close();
    }
}
