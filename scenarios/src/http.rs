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
/// Most bytes of a chunk.
const MAX_CHUNK: usize = 64 << 20;
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
        let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
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

    fn chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
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

    /// Sends a request and hands over the body of its answer piece by piece, as it comes: each chunk once it is whole.
    pub(crate) async fn stream(&mut self, request: &[u8], mut take: impl FnMut(&[u8])) -> Result<Head, StoryError> {
        self.stream.write_all(request).await.map_err(StoryError::io(SEND))?;
        let text = self.until(b"\r\n\r\n").await?;
        let head = Head::parse(&text).ok_or_else(|| StoryError::Answer(format!("no HTTP answer: {text}")))?;
        if let Some(length) = head.length() {
            self.exactly(length, &mut take).await?;
            return Ok(head);
        }
        if !head.chunked() {
            self.drain(&mut take).await?;
            return Ok(head);
        }
        loop {
            let line = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| StoryError::Answer(format!("no size of a chunk: {line}")))?;
            if size > MAX_CHUNK {
                return Err(StoryError::Answer(format!("a chunk of {size} bytes")));
            }
            while self.received.len() < size {
                self.receive().await?;
            }
            take(&self.received[..size]);
            self.received.advance(size);
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

    /// Hands over what comes until the server closes the connection.
    async fn drain(&mut self, take: &mut impl FnMut(&[u8])) -> Result<(), StoryError> {
        loop {
            if !self.received.is_empty() {
                take(&self.received);
                self.received.clear();
            }
            let read = self.stream.read_buf(&mut self.received).await;
            if read.map_err(StoryError::io(READ))? == 0 {
                return Ok(());
            }
        }
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

    /// Lets a server answer with these bytes and close, and returns the pieces that come.
    async fn pieces(answer: &'static str) -> Result<Vec<String>, StoryError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 3]).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let mut pieces = Vec::new();
        let mut connection = Connection::open(address).await?;
        let head = connection.stream(b"GET", |bytes| pieces.push(String::from_utf8_lossy(bytes).into_owned())).await;
        server.await.unwrap();
        pieces.retain(|piece| !piece.is_empty());
        head.map(|_| pieces)
    }

    #[tokio::test]
    async fn bodies_end_by_their_length_by_their_chunks_or_with_the_connection() {
        let whole = |pieces: Vec<String>| pieces.concat();
        assert_eq!(whole(pieces("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc").await.unwrap()), "abc");
        assert_eq!(whole(pieces("HTTP/1.0 200 OK\r\n\r\nabc").await.unwrap()), "abc");
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(pieces(chunks).await.unwrap(), ["ab", "c"]);
    }

    #[tokio::test]
    async fn bodies_that_break_off_are_errors() {
        let told = |outcome: Result<Vec<String>, StoryError>| outcome.unwrap_err().to_string();
        assert_eq!(told(pieces("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc").await), READ);
        assert_eq!(told(pieces("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab").await), READ);
        assert_eq!(
            told(pieces("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n").await),
            "no size of a chunk: xyz"
        );
    }
}
