//! Sends the requests of a load and collects what their clients saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Bench;
use super::answer::Answer;
use super::exposition::Exposition;
use super::load::{Load, arrivals, waves};
use super::row::Row;
use super::sample::Sample;
use crate::http::Connection;
use crate::lots::Lots;
use crate::machine::{forget_peak, load, peak};

/// Bytes of an error that are kept.
const MAX_ERROR: usize = 4096;

/// A benchmark under way: the next request's number, and who hears of each one's end.
struct Run<F> {
    bench: Bench,
    next: AtomicUsize,
    hear: F,
}

// --- impl Bench ---

impl Bench {
    /// Sends `warm_up` requests that do not count, then measures `requests` under a load. `hear` is told of every request
    /// that ended.
    pub async fn row<F>(&self, pattern: Load, requests: usize, warm_up: usize, hear: F) -> Row
    where
        F: Fn(&Sample) + Send + Sync + 'static,
    {
        // Other loads and seeds ask other things, so that no row profits from what an earlier one left in caches.
        let first = Lots::new(self.seed, &format!("{pattern:?}")).below(0, 1_000_000) as usize;
        let run = Arc::new(Run { bench: self.clone(), next: AtomicUsize::new(first), hear });
        let warm = match pattern {
            Load::Waves(at_once) | Load::Closed(at_once) => Load::Closed(at_once),
            Load::Open(_) => Load::Closed(1),
        };
        Arc::clone(&run).all(warm, warm_up).await;
        let load_before = load();
        let before = self.exposition().await;
        if let Some(pid) = self.pid {
            forget_peak(pid);
        }
        let began = Instant::now();
        let samples = run.all(pattern, requests).await;
        let wall = began.elapsed();
        let after = self.exposition().await;
        Row {
            mean_batch: after.mean_batches(&before),
            peak_memory: self.pid.map_or_else(|| after.peak_memory(), peak),
            load_before,
            load_after: load(),
            ..Row::of(pattern, wall, &samples)
        }
    }

    async fn exposition(&self) -> Exposition {
        self.target.get("/metrics").await.map_or_else(Exposition::default, |text| Exposition::read(&text))
    }
}

// --- impl Run ---

impl<F: Fn(&Sample) + Send + Sync + 'static> Run<F> {
    /// Sends so many requests.
    async fn all(self: Arc<Self>, load: Load, requests: usize) -> Vec<Sample> {
        match load {
            Load::Waves(at_once) => {
                let mut samples = Vec::with_capacity(requests);
                for wave in waves(requests, at_once) {
                    samples.extend(self.together(wave.map(|_| Duration::ZERO)).await);
                }
                samples
            }
            Load::Closed(clients) => self.in_turns(clients.max(1), requests).await,
            Load::Open(rate) => self.together(arrivals(requests, rate, self.bench.seed)).await,
        }
    }

    /// Sends one request at each of these moments, whatever became of those before.
    async fn together(self: &Arc<Self>, due: impl IntoIterator<Item = Duration>) -> Vec<Sample> {
        let began = Instant::now();
        let mut clients = JoinSet::new();
        for after in due {
            let run = Arc::clone(self);
            clients.spawn(async move {
                sleep_until(began + after).await;
                run.one(run.number(), began + after).await
            });
        }
        collected(clients).await
    }

    /// Lets so many clients ask, each again as soon as it was answered.
    async fn in_turns(self: &Arc<Self>, clients: usize, requests: usize) -> Vec<Sample> {
        let left = Arc::new(AtomicUsize::new(requests));
        let mut asking = JoinSet::new();
        for _ in 0..clients {
            let (run, left) = (Arc::clone(self), Arc::clone(&left));
            asking.spawn(async move {
                let mut samples = Vec::new();
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    samples.push(run.one(run.number(), Instant::now()).await);
                }
                samples
            });
        }
        collected(asking).await.into_iter().flatten().collect()
    }

    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends one request that was due at a moment, and reads its answer.
    async fn one(&self, n: usize, due: Instant) -> Sample {
        let served = timeout(self.bench.deadline, self.bench.serve(n, due));
        let sample = served.await.unwrap_or_else(|_| Sample::failed("deadline"));
        (self.hear)(&sample);
        sample
    }
}

impl Bench {
    async fn serve(&self, n: usize, due: Instant) -> Sample {
        let asked = self.asked(n);
        let request = self.target.post(asked.path, asked.content_type, &asked.body);
        let (mut answer, mut said) = (Answer::new(asked.shape), Vec::new());
        let mut connection = match Connection::open(self.target.address).await {
            Ok(connection) => connection,
            Err(_) => return Sample::failed("no connection"),
        };
        let head = connection.stream(&request, |bytes| {
            let room = MAX_ERROR.saturating_sub(said.len()).min(bytes.len());
            said.extend_from_slice(&bytes[..room]);
            answer.take(due.elapsed(), bytes);
        });
        match head.await {
            Ok(head) if head.status == 200 => Sample { listened: asked.listened, ..answer.end(due.elapsed()) },
            Ok(head) => Sample::failed(format!("{}: {}", head.status, told(&said))),
            Err(_) => Sample::failed("broke off"),
        }
    }
}

/// Returns what an error says, shortened to a line.
fn told(body: &[u8]) -> String {
    let message = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = message.as_ref().and_then(|value| value["error"]["message"].as_str()).map(str::to_owned);
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

async fn collected<T: 'static>(mut clients: JoinSet<T>) -> Vec<T> {
    let mut all = Vec::with_capacity(clients.len());
    while let Some(ended) = clients.join_next().await {
        // A client that panicked has said so already; what it saw is lost.
        all.extend(ended.ok());
    }
    all
}
