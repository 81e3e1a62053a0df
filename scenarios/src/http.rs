//! A client of one connection, kept alive, that adds as little time of its own as it can.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::StoryError;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its status.
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

/// How long a whole answer may take.
const WITHIN: Duration = Duration::from_secs(600);
const READ: &str = "the server's answer broke off";
const SEND: &str = "the server takes no request";

/// Returns a request whose answer leaves the connection open.
pub(crate) fn post(path: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

// --- impl Head ---

impl Head {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Some(Self { status, headers: lines.filter_map(pair).collect() })
    }

    /// Returns a header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }
}

// --- impl Connection ---

impl Connection {
    /// Connects to a server.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, StoryError> {
        let stream = TcpStream::connect(address).await.map_err(StoryError::io("the server takes no connection"))?;
        stream.set_nodelay(true).map_err(StoryError::io("the connection keeps its delay"))?;
        Ok(Self { stream, received: BytesMut::with_capacity(16 << 10) })
    }

    /// Sends a request and collects its answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<(Head, Vec<u8>), StoryError> {
        let mut body = Vec::new();
        let answer = self.stream(request, |bytes| body.extend_from_slice(bytes));
        let late = |_| StoryError::Answer(format!("no answer within {WITHIN:?}"));
        let head = tokio::time::timeout(WITHIN, answer).await.map_err(late)??;
        Ok((head, body))
    }

    /// Sends a request and hands over the body of its answer piece by piece, as it comes.
    pub(crate) async fn stream(&mut self, request: &[u8], mut take: impl FnMut(&[u8])) -> Result<Head, StoryError> {
        self.stream.write_all(request).await.map_err(StoryError::io(SEND))?;
        let text = self.until(b"\r\n\r\n").await?;
        let head = Head::parse(&text).ok_or_else(|| StoryError::Answer(format!("no HTTP answer: {text}")))?;
        if let Some(length) = head.length() {
            self.exactly(length, &mut take).await?;
            return Ok(head);
        }
        loop {
            let line = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| StoryError::Answer(format!("no size of a chunk: {line}")))?;
            self.exactly(size, &mut take).await?;
            self.until(b"\r\n").await?;
            if size == 0 {
                return Ok(head);
            }
        }
    }

    /// Returns what comes before a mark, and goes past it.
    async fn until(&mut self, mark: &[u8]) -> Result<String, StoryError> {
        loop {
            if let Some(at) = self.received.windows(mark.len()).position(|window| window == mark) {
                let text = String::from_utf8_lossy(&self.received[..at]).into_owned();
                self.received.advance(at + mark.len());
                return Ok(text);
            }
            self.receive().await?;
        }
    }

    async fn exactly(&mut self, mut length: usize, take: &mut impl FnMut(&[u8])) -> Result<(), StoryError> {
        while length > 0 {
            if self.received.is_empty() {
                self.receive().await?;
            }
            let now = length.min(self.received.len());
            take(&self.received[..now]);
            self.received.advance(now);
            length -= now;
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<(), StoryError> {
        match self.stream.read_buf(&mut self.received).await {
            Ok(0) => Err(StoryError::io(READ)(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error) => Err(StoryError::io(READ)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whatever_the_case_of_its_names() {
        let head = Head::parse("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\ncontent-length: 10").unwrap();
        assert_eq!((head.status, head.header("retry-after"), head.length()), (503, Some("2"), Some(10)));
        assert_eq!(Head::parse("SSH-2.0"), None);
    }
}
