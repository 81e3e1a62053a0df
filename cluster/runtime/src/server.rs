//! The HTTP server: accepts until it is told to stop, then lets open connections end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use mstar_gateway::{Gateway, router};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that accepts.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<std::io::Result<()>>,
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

// --- impl Server ---

impl Server {
    /// Opens an address. Port 0 takes a free one.
    pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
        TcpListener::bind(address).await.map_err(|source| ServerError { address, source })
    }

    /// Starts to accept.
    pub fn start(listener: TcpListener, gateway: Arc<Gateway>) -> Result<Self, ServerError> {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let address = listener.local_addr().map_err(|source| ServerError { address: unknown, source })?;
        let (stop, stopped) = oneshot::channel();
        // Tokens leave one by one: waiting to fill a packet would hold each one up.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection keeps its delay");
            }
        });
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            axum::serve(listener, router(gateway)).with_graceful_shutdown(stopped).await
        });
        Ok(Self { address, stop: Some(stop), task })
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts nothing more; open connections go on.
    pub fn stop_accepting(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for open connections, but not longer than this, then closes them.
    pub async fn close(mut self, within: Duration) {
        self.stop_accepting();
        if tokio::time::timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
