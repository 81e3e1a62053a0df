//! The HTTP server: accepts until it is told to stop, then lets open connections end.
//!
//! It speaks HTTP/1.1. A connection that takes too long over the head of its next request is closed, and so is one whose
//! client stops taking its answer; beyond the bound on connections the next one is told 503 at once.

mod impatient;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use mstar_config::Http;
use mstar_gateway::router;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::Cluster;
use crate::metrics::{CONNECTIONS, CONNECTIONS_REFUSED};
use crate::server::impatient::Impatient;

/// A server that accepts.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// An address that is taken, at which nobody listens yet: whoever asks meanwhile is refused at once instead of waiting.
#[derive(Debug)]
pub struct Reserved {
    socket: TcpSocket,
    address: SocketAddr,
}

/// The server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ServerError {
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    pub source: std::io::Error,
}

/// What accepts connections.
struct Acceptor {
    router: Router,
    rules: Http,
    /// What a connection is told for which there is no room.
    refusal: Arc<str>,
    stopping: watch::Receiver<bool>,
}

/// Connections that the system may hold until they are accepted.
const BACKLOG: u32 = 1024;
/// How long to wait when the system gives no connection, mostly because the process has too many files open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

// --- impl Server ---

impl Server {
    /// Takes an address. Port 0 takes a free one.
    pub fn reserve(address: SocketAddr) -> Result<Reserved, ServerError> {
        let reserved = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Connections of a process that has ended keep the port for a while, but not from us.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(Reserved { address: socket.local_addr()?, socket })
        };
        reserved().map_err(|source| ServerError { address, source })
    }

    /// Starts to listen and to accept for a cluster. It goes on while the cluster drains, so that clients are told that it
    /// does.
    pub fn start(Reserved { socket, address }: Reserved, cluster: &Cluster) -> Result<Self, ServerError> {
        let listener = socket.listen(BACKLOG).map_err(|source| ServerError { address, source })?;
        let (stop, stopping) = watch::channel(false);
        let deployment = cluster.deployment();
        let acceptor = Acceptor {
            router: router(Arc::clone(cluster.gateway())),
            rules: deployment.http.clone(),
            refusal: refusal(deployment.limits.retry_after_s),
            stopping,
        };
        Ok(Self { address, stop, task: tokio::spawn(acceptor.run(listener)) })
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more and waits for open connections, but not longer than this, then closes them.
    pub async fn close(mut self, within: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

// --- impl Acceptor ---

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = asked(&mut self.stopping) => break,
                Some(_) = open.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if open.len() >= self.rules.max_connections => self.refuse(stream),
                    Ok((stream, _)) => {
                        open.spawn(serve(stream, self.router.clone(), self.rules.clone(), self.stopping.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no connection could be accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
            }
            metrics::gauge!(CONNECTIONS).set(open.len() as f64);
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    /// Tells a client that there is no room. Its request is not read: that would take what there is none of.
    fn refuse(&self, stream: TcpStream) {
        metrics::counter!(CONNECTIONS_REFUSED).increment(1);
        // The few bytes fit into the empty buffer of a new connection; a client that left needs none.
        let _ = stream.into_std().and_then(|mut stream| stream.write_all(self.refusal.as_bytes()));
    }
}

/// Returns an answer in the shape of all errors.
fn refusal(retry_after_s: u64) -> Arc<str> {
    let error = r#"{"error":{"message":"too many connections are open","type":"overloaded_error","param":null,"code":"overloaded"}}"#;
    let length = error.len();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close";
    format!("{head}\r\ncontent-length: {length}\r\nretry-after: {retry_after_s}\r\n\r\n{error}").into()
}

/// Waits until the server is asked to stop.
async fn asked(stopping: &mut watch::Receiver<bool>) {
    // A server that is gone asks for nothing else.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Serves a connection to its end; once the server stops, to the end of the request that it has under way.
async fn serve(stream: TcpStream, router: Router, rules: Http, mut stopping: watch::Receiver<bool>) {
    // Tokens leave one by one: waiting to fill a packet would hold each one up.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let stream = TokioIo::new(Impatient::new(stream, rules.reader_stall));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(rules.header_timeout);
    let connection = http.serve_connection(stream, TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = asked(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
