//! The cancel story: half of many clients go away at random moments, and nothing is left of them.

use std::sync::Arc;
use std::time::Duration;

use mstar_actors::NoFaults;
use mstar_config::{Deployment, KvBudget};
use mstar_contract::Failure;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::asks::Asks;
use crate::error::StoryError;
use crate::held::Held;
use crate::lots::Lots;
use crate::machine::{load, mebibytes, resident, rounded};
use crate::reply::{Reply, side_by_side};
use crate::report::Report;
use crate::setting::Setting;

/// How large the cancel story is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelStory {
    /// How many requests are asked.
    pub requests: usize,
    /// Most requests at a time.
    pub at_once: usize,
    /// Most tokens of an answer.
    pub max_tokens: u32,
}

/// How a request went.
enum Ended {
    /// Its client went away.
    Dropped,
    /// It gave its result.
    Served,
    /// It failed.
    Failed(Failure),
}

/// What a request of a kind is like among others.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    time: Duration,
    pieces: usize,
}

/// When a client goes away: at the first of both.
#[derive(Clone, Copy, Debug)]
struct Patience {
    time: Duration,
    pieces: usize,
}

/// How all went, and the memory on the way.
#[derive(Debug, Default)]
struct Tally {
    dropped: usize,
    served: usize,
    failed: usize,
    first: Option<Failure>,
    resident: Vec<u64>,
}

/// How long what is left of requests may take to go away.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);
/// How often memory is looked at.
const LOOKS: usize = 80;
/// How much memory may grow over the last half and still be flat: the allocator breathes.
const FLAT_BYTES: f64 = (8 << 20) as f64;
const FLAT_SHARE: f64 = 0.02;
/// Keys and values of each cache: some 2,900 tokens of the default language model.
const KV_BYTES: u64 = 64 << 20;
/// Rounds over all kinds by which the usual time of each is measured.
const ROUNDS: usize = 3;

impl Default for CancelStory {
    fn default() -> Self {
        Self { requests: 2000, at_once: 16, max_tokens: 8 }
    }
}

/// Tells the cancel story.
pub async fn cancel(setting: &Setting, story: CancelStory) -> Result<Report, StoryError> {
    let cluster = Arc::new(setting.boot(narrow, Arc::new(NoFaults)).await?);
    let asks = Arc::new(Asks::new(setting, &cluster, story.max_tokens).await?);
    let usual = Arc::new(usual_requests(&asks, story.at_once).await?);
    let held_before = Held::settled(&cluster, SETTLE_WITHIN).await;

    let began = Instant::now();
    let tally = run(setting, &asks, &usual, story).await;
    let seconds = began.elapsed().as_secs_f64();
    let held = Held::settled(&cluster, SETTLE_WITHIN).await;
    let memory = Memory::of(&tally.resident);

    let mut report = Report::new(json!({
        "story": "cancel",
        "fake": setting.fake,
        "seed": setting.seed,
        "requests": story.requests,
        "kinds": asks.kinds(),
        "dropped": tally.dropped,
        "served": tally.served,
        "failed": tally.failed,
        "held_before": held_before.json(),
        "held_after": held.json(),
        "resident": memory.as_ref().map(Memory::json),
        "resident_mib": tally.resident.iter().map(|&bytes| mebibytes(bytes as f64).round()).collect::<Vec<_>>(),
        "seconds": rounded(seconds, 2),
        "load": load(),
    }));
    report.must(tally.failed == 0, || format!("{} requests failed, the first: {:?}", tally.failed, tally.first));
    let told = tally.dropped + tally.served + tally.failed;
    report.must(told == story.requests, || format!("{} requests never ended", story.requests - told));
    let half = tally.dropped * 5 >= story.requests * 2;
    report.must(half, || format!("only {} clients went away", tally.dropped));
    report.must(held.nothing(), || "requests that are over still hold something".to_owned());
    if let Some(memory) = memory {
        report.must(memory.flat(), || format!("memory grew by {} MiB", mebibytes(memory.growth())));
    }
    setting.end(cluster, asks).await;
    Ok(report)
}

/// Gives every cache of keys and values so little room that it is full long before memory is looked at: what was once
/// computed stays known until others need its pages, so that memory grows to the budget and stays.
fn narrow(deployment: &mut Deployment) {
    for placement in deployment.placements.iter_mut().filter(|placement| placement.kv.is_some()) {
        placement.kv = Some(KvBudget::Bytes(KV_BYTES));
    }
}

/// Returns what a request of each kind is like among others.
async fn usual_requests(asks: &Arc<Asks>, at_once: usize) -> Result<Vec<Usual>, StoryError> {
    let kinds = asks.kinds().len();
    let (mut usual, mut failed) = (vec![Usual::default(); kinds], None);
    let timed = |n| {
        let asks = Arc::clone(asks);
        async move {
            let began = Instant::now();
            asks.reply(n).await.map(|reply| Usual { time: began.elapsed(), pieces: reply.pieces })
        }
    };
    side_by_side(kinds * ROUNDS, at_once, timed, |n, seen: Result<Usual, Failure>| match seen {
        Ok(seen) => {
            let kind = &mut usual[n % kinds];
            kind.time += seen.time / ROUNDS as u32;
            kind.pieces = kind.pieces.max(seen.pieces);
        }
        Err(failure) => failed = Some(failure),
    })
    .await;
    match failed {
        Some(source) => Err(StoryError::Request { what: "a request that nobody cancels", source }),
        None => Ok(usual),
    }
}

async fn run(setting: &Setting, asks: &Arc<Asks>, usual: &Arc<Vec<Usual>>, story: CancelStory) -> Tally {
    let draws = ["drops", "moments", "pieces"].map(|purpose| Lots::new(setting.seed, purpose));
    let serve = |n: usize| {
        let (asks, usual) = (Arc::clone(asks), Arc::clone(usual));
        async move {
            let ([drops, moments, pieces], place, usual) = (draws, n as u64, usual[asks.kind(n)]);
            // One of every two goes away, at any moment of its usual time.
            let goes = (drops.below(place / 2, 2) == 0) == n.is_multiple_of(2);
            let patience = goes.then(|| Patience {
                time: usual.time.mul_f64(moments.share(place)),
                pieces: pieces.below(place, usual.pieces as u64) as usize,
            });
            ask(&asks, n, patience).await
        }
    };
    let mut tally = Tally::default();
    let look_every = (story.requests / LOOKS).max(1);
    side_by_side(story.requests, story.at_once, serve, |_, ended| {
        match ended {
            Ended::Dropped => tally.dropped += 1,
            Ended::Served => tally.served += 1,
            Ended::Failed(failure) => {
                tally.failed += 1;
                tally.first.get_or_insert(failure);
            }
        }
        let over = tally.dropped + tally.served + tally.failed;
        if over.is_multiple_of(look_every) {
            tally.resident.extend(resident());
        }
        if over.is_multiple_of(story.requests.div_ceil(10)) {
            setting.tell(format!("{over} of {}: {} clients went away", story.requests, tally.dropped));
        }
    })
    .await;
    tally
}

/// Asks, and goes away when patience ends.
async fn ask(asks: &Asks, n: usize, patience: Option<Patience>) -> Ended {
    let stream = match asks.submit(n).await {
        Ok(stream) => stream,
        Err(failure) => return Ended::Failed(failure),
    };
    let outcome = match patience {
        None => Reply::read(stream).await.map(Some),
        Some(Patience { time, pieces }) => {
            tokio::time::timeout(time, Reply::read_some(stream, pieces)).await.unwrap_or(Ok(None))
        }
    };
    match outcome {
        Ok(Some(_)) => Ended::Served,
        Ok(None) => Ended::Dropped,
        Err(failure) => Ended::Failed(failure),
    }
}

/// Resident memory over the last half of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Memory {
    start: f64,
    third_quarter: f64,
    last_quarter: f64,
    peak: f64,
}

// --- impl Memory ---

impl Memory {
    /// Returns the means of the last two quarters of what was seen; nothing where too little was.
    fn of(seen: &[u64]) -> Option<Self> {
        let mean = |range: &[u64]| range.iter().map(|&bytes| bytes as f64).sum::<f64>() / range.len() as f64;
        let (half, last) = (seen.len() / 2, seen.len() * 3 / 4);
        if half == 0 || last == half {
            return None;
        }
        let peak = seen.iter().copied().max()? as f64;
        let (third_quarter, last_quarter) = (mean(&seen[half..last]), mean(&seen[last..]));
        Some(Self { start: seen[0] as f64, third_quarter, last_quarter, peak })
    }

    fn growth(&self) -> f64 {
        self.last_quarter - self.third_quarter
    }

    fn flat(&self) -> bool {
        self.growth() <= FLAT_BYTES.max(self.third_quarter * FLAT_SHARE)
    }

    fn json(&self) -> Value {
        json!({
            "start_mib": mebibytes(self.start),
            "third_quarter_mib": mebibytes(self.third_quarter),
            "last_quarter_mib": mebibytes(self.last_quarter),
            "peak_mib": mebibytes(self.peak),
            "growth_mib": mebibytes(self.growth()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_flat_when_its_last_quarter_is_like_the_one_before() {
        let mib = |values: &[u64]| values.iter().map(|value| value << 20).collect::<Vec<_>>();
        let flat = Memory::of(&mib(&[50, 300, 301, 300, 302, 300, 301, 303])).unwrap();
        assert!(flat.flat(), "{flat:?}");
        let grows = Memory::of(&mib(&[50, 300, 310, 320, 330, 340, 350, 360])).unwrap();
        assert!(!grows.flat(), "{grows:?}");
        assert_eq!(Memory::of(&[1]), None);
    }
}
