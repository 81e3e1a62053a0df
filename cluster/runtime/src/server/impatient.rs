//! A connection whose client may not stop taking what is sent to it for long: what is sent to nobody would keep its
//! place for ever.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream that breaks when nothing of what is written to it leaves for too long.
pub(super) struct Impatient<S> {
    stream: S,
    stall: Duration,
    /// Runs while something waits to leave.
    waiting: Option<Pin<Box<Sleep>>>,
}

// --- impl Impatient ---

impl<S> Impatient<S> {
    pub(super) fn new(stream: S, stall: Duration) -> Self {
        Self { stream, stall, waiting: None }
    }

    /// Lets what was written through, and breaks what has waited for too long.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let stall = self.stall;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, format!("the client took nothing for {stall:?}"))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_stream_breaks_only_when_nothing_leaves() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut server = Impatient::new(server, Duration::from_secs(30));
        let mut taken = [0; 4];
        // The client is slow, but it takes something in time, again and again.
        for _ in 0..5 {
            server.write_all(b"abcd").await.unwrap();
            tokio::time::advance(Duration::from_secs(29)).await;
            client.read_exact(&mut taken).await.unwrap();
        }
        server.write_all(b"abcd").await.unwrap();
        let broken = server.write_all(b"e").await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::TimedOut);
    }
}
