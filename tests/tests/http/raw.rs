//! Connections without a client library: bytes go out as they are, and what comes back is read as it is.

use std::io::ErrorKind;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Opens a connection and sends bytes.
pub(crate) async fn sent(house: &House, bytes: &[u8]) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect(house.address()).await?;
    stream.write_all(bytes).await?;
    Ok(stream)
}

/// Returns what comes back until the server closes the connection.
pub(crate) async fn answer(mut stream: impl AsyncRead + Unpin) -> Outcome<String> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        // Bytes that the server does not read any more reset the connection, after the answer.
        Err(error) if error.kind() != ErrorKind::ConnectionReset || answer.is_empty() => Err(error.into()),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Sends bytes, for as long as the server takes them, and returns what comes back.
pub(crate) async fn asked(house: &House, bytes: &[u8]) -> Outcome<String> {
    let (read, mut write) = TcpStream::connect(house.address()).await?.into_split();
    // An answer may come before all was sent: it tells why.
    let (_, answer) = tokio::join!(write.write_all(bytes), answer(read));
    answer
}

/// Returns the head of a form that will be so many bytes long.
pub(crate) fn head(length: usize) -> String {
    format!(
        "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// Returns the head of a form that comes in chunks.
pub(crate) fn chunked_head() -> &'static str {
    "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
     transfer-encoding: chunked\r\n\r\n"
}
