//! The server that is asked, and requests as it takes them.

use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::error::StoryError;
use crate::http::Connection;

/// A server that is asked over HTTP.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its URL, without what endpoints add.
    pub url: String,
    host: String,
    base: String,
    api_key: Option<String>,
}

// --- impl Target ---

impl Target {
    /// Finds the server of a URL such as `http://127.0.0.1:8000` or `http://localhost:8080/v1`; `127.0.0.1:8000` will do.
    pub fn find(url: &str, api_key: Option<String>) -> Result<Self, StoryError> {
        let wrong = |why: &str| StoryError::Answer(format!("{url} is not a server: {why}"));
        let rest = match url.split_once("://") {
            None => url,
            Some(("http", rest)) => rest,
            Some(_) => return Err(wrong("it must begin with http://")),
        };
        let (host, base) = rest.split_once('/').unwrap_or((rest, ""));
        let base = base.trim_end_matches('/');
        // Endpoints bring their version along.
        let base = base.strip_suffix("v1").unwrap_or(base).trim_end_matches('/');
        let base = if base.is_empty() { String::new() } else { format!("/{base}") };
        let named = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let mut found = named.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
        let address = found.next().ok_or_else(|| wrong("no such host"))?;
        Ok(Self { address, url: format!("http://{host}{base}"), host: host.to_owned(), base, api_key })
    }

    /// Returns a request that posts a body of this type.
    pub(super) fn post(&self, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
        let head = self.head("POST", path);
        let length = body.len();
        let mut request =
            format!("{head}content-type: {content_type}\r\ncontent-length: {length}\r\n\r\n").into_bytes();
        request.extend_from_slice(body);
        request
    }

    /// Gets a text; nothing when the server has none there.
    pub(super) async fn get(&self, path: &str) -> Option<String> {
        let request = format!("{}\r\n", self.head("GET", path));
        let mut connection = Connection::open(self.address).await.ok()?;
        let (head, body) = connection.ask(request.as_bytes()).await.ok()?;
        (head.status == 200).then(|| String::from_utf8_lossy(&body).into_owned())
    }

    fn head(&self, method: &str, path: &str) -> String {
        let key = self.api_key.as_ref().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let Self { host, base, .. } = self;
        format!("{method} {base}{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_and_without_their_version() {
        let url = |text: &str| Target::find(text, None).map(|target| target.url).map_err(|error| error.to_string());
        assert_eq!(url("http://127.0.0.1:8000").unwrap(), "http://127.0.0.1:8000");
        assert_eq!(url("http://127.0.0.1:8080/v1/").unwrap(), "http://127.0.0.1:8080");
        assert_eq!(url("http://127.0.0.1:8080/api/v1").unwrap(), "http://127.0.0.1:8080/api");
        assert_eq!(url("127.0.0.1:1").unwrap(), "http://127.0.0.1:1");
        assert_eq!(url("https://x").unwrap_err(), "https://x is not a server: it must begin with http://");
    }

    #[test]
    fn requests_show_their_key_and_length() {
        let target = Target::find("http://127.0.0.1:8080/api", Some("secret".to_owned())).unwrap();
        let request = String::from_utf8(target.post("/v1/x", "text/plain", b"abc")).unwrap();
        assert_eq!(
            request,
            "POST /api/v1/x HTTP/1.1\r\nhost: 127.0.0.1:8080\r\nconnection: close\r\nauthorization: Bearer secret\r\n\
             content-type: text/plain\r\ncontent-length: 3\r\n\r\nabc"
        );
    }
}
