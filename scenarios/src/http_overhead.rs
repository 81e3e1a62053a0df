//! What a request costs over HTTP when its model computes nothing: a trivial one, and each token of a streamed one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mstar_config::Deployment;
use mstar_runtime::{Boot, Cluster, Server};
use serde_json::{Value, json};
use tokio::sync::{Barrier, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::Spread;
use crate::counter::{COUNTER, zoo};
use crate::error::StoryError;
use crate::http::{Connection, post};
use crate::machine::rounded;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpOverhead {
    /// Trivial requests of all clients together.
    pub requests: usize,
    /// Tokens of a streamed answer.
    pub tokens: usize,
}

/// A server with a runtime of its own, as a process of its own would have.
struct Apart {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), StoryError>>,
}

/// How many clients ask at a time.
const CLIENTS: [usize; 2] = [1, 16];
/// The deployment: one rank with one thread, and answers as long as wanted.
const DEPLOYMENT: &str = "[model.counter]\n[[rank]]\nname = 'cpu0'\nthreads = 1\n\
    [limits]\nmax_output_tokens = 1_000_000\n";
/// How long open connections may take to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

impl Default for HttpOverhead {
    fn default() -> Self {
        Self { requests: 8000, tokens: 4000 }
    }
}

/// Measures against a server in this process that has threads of its own, and returns the figures as JSON.
pub async fn http_overhead(size: HttpOverhead) -> Result<Value, StoryError> {
    let server = Apart::start().await?;
    let (mut trivial, mut streamed) = (Vec::new(), Vec::new());
    for clients in CLIENTS {
        trivial_requests(server.address, clients, size.requests / 10).await?;
        trivial.push(trivial_requests(server.address, clients, size.requests).await?);
    }
    for clients in CLIENTS {
        streamed_tokens(server.address, clients, size.tokens / 10).await?;
        streamed.push(streamed_tokens(server.address, clients, size.tokens).await?);
    }
    server.end()?;
    Ok(json!({"trivial_request": trivial, "streamed_token": streamed}))
}

/// Asks for one step, again and again, and returns a row of figures.
async fn trivial_requests(address: SocketAddr, clients: usize, requests: usize) -> Result<Value, StoryError> {
    let form = format!("model={COUNTER}&text=hello&streaming=false");
    let request: Arc<[u8]> = post("/generate", "application/x-www-form-urlencoded", &form).into();
    let each = requests.div_ceil(clients);
    let ask = move |mut connection: Connection| {
        let request = Arc::clone(&request);
        async move {
            let mut times = Vec::with_capacity(each);
            for _ in 0..each {
                let began = Instant::now();
                let (head, body) = connection.ask(&request).await?;
                times.push(began.elapsed());
                if head.status != 200 {
                    return Err(StoryError::Answer(String::from_utf8_lossy(&body).into_owned()));
                }
            }
            Ok(times)
        }
    };
    let (took, times) = all_at_once(address, clients, ask).await?;
    let times: Vec<f64> = times.into_iter().flatten().map(|time| time.as_secs_f64() * 1e6).collect();
    let requests = times.len();
    let spread = Spread::of(times);
    Ok(json!({
        "clients": clients,
        "requests": requests,
        "p50_us": spread.map(|spread| rounded(spread.p50, 1)),
        "p99_us": spread.map(|spread| rounded(spread.p99, 1)),
        "requests_per_s": rounded(requests as f64 / took.as_secs_f64(), 0),
    }))
}

/// Streams one long answer to each client and returns a row of figures.
async fn streamed_tokens(address: SocketAddr, clients: usize, tokens: usize) -> Result<Value, StoryError> {
    let body = json!({
        "model": COUNTER, "stream": true, "max_tokens": tokens,
        "messages": [{"role": "user", "content": "count"}],
    });
    let request: Arc<[u8]> = post("/v1/chat/completions", "application/json", &body.to_string()).into();
    let read = move |mut connection: Connection| {
        let request = Arc::clone(&request);
        async move {
            let (mut ends, mut last) = (0usize, 0u8);
            let head = connection.stream(&request, |bytes| {
                for &byte in bytes {
                    ends += usize::from(byte == b'\n' && last == b'\n');
                    last = byte;
                }
            });
            let status = head.await?.status;
            // Beside the tokens: the role, the end, and the mark behind it.
            if status == 200 && ends == tokens + 3 {
                return Ok(());
            }
            Err(StoryError::Answer(format!("status {status}, {ends} events for {tokens} tokens")))
        }
    };
    let (took, _) = all_at_once(address, clients, read).await?;
    let step_us = took.as_secs_f64() * 1e6 / tokens as f64;
    Ok(json!({
        "streams": clients,
        "tokens": tokens * clients,
        "us_per_step": rounded(step_us, 1),
        "us_per_token": rounded(step_us / clients as f64, 1),
    }))
}

/// Lets clients, each with a connection, begin at one moment, and returns how long it took until the last had ended.
async fn all_at_once<T, F>(
    address: SocketAddr,
    clients: usize,
    client: impl Fn(Connection) -> F,
) -> Result<(Duration, Vec<T>), StoryError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoryError>> + Send + 'static,
{
    let gate = Arc::new(Barrier::new(clients + 1));
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let (served, gate) = (client(Connection::open(address).await?), Arc::clone(&gate));
        running.spawn(async move {
            gate.wait().await;
            served.await
        });
    }
    gate.wait().await;
    let began = Instant::now();
    let mut outcomes = Vec::with_capacity(clients);
    while let Some(ended) = running.join_next().await {
        let died = |error| StoryError::Answer(format!("a client died: {error}"));
        outcomes.push(ended.map_err(died)??);
    }
    Ok((began.elapsed(), outcomes))
}

// --- impl Apart ---

impl Apart {
    async fn start() -> Result<Self, StoryError> {
        let (stop, stopped) = oneshot::channel();
        let (up, address) = oneshot::channel();
        let thread = std::thread::Builder::new().name("server".to_owned());
        let thread = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.map_err(StoryError::io("the server gets no threads"))?;
            runtime.block_on(serve(up, stopped))
        });
        let thread = thread.map_err(StoryError::io("the server gets no thread"))?;
        match address.await {
            Ok(address) => Ok(Self { address, stop, thread }),
            Err(_) => Err(joined(thread).err().unwrap_or_else(gone)),
        }
    }

    fn end(self) -> Result<(), StoryError> {
        let _ = self.stop.send(());
        joined(self.thread)
    }
}

/// Serves until asked to stop; tells where as soon as it does.
async fn serve(up: oneshot::Sender<SocketAddr>, stopped: oneshot::Receiver<()>) -> Result<(), StoryError> {
    let zoo = zoo()?;
    let deployment = Deployment::parse("the benchmark's deployment", DEPLOYMENT, &zoo.catalogue());
    let deployment = deployment.map_err(|report| StoryError::Deployment(report.to_string()))?;
    let cluster = Cluster::boot(Boot::new(deployment, zoo)).await.map_err(Box::new)?;
    let listener = Server::reserve(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let server = Server::start(listener, &cluster)?;
    let _ = up.send(server.address());
    let _ = stopped.await;
    server.close(CLOSE_WITHIN).await;
    cluster.shutdown().await;
    Ok(())
}

fn joined(thread: JoinHandle<Result<(), StoryError>>) -> Result<(), StoryError> {
    thread.join().unwrap_or_else(|_| Err(gone()))
}

fn gone() -> StoryError {
    StoryError::Answer("the server ended before its time".to_owned())
}
