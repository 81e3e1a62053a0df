//! The flood story: more requests at once than may wait. The queue stays within its bound, the rest is told when to
//! come again, and whoever was admitted is served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mstar_actors::NoFaults;
use mstar_config::Deployment;
use mstar_runtime::{Cluster, Server};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::StoryError;
use crate::held::Held;
use crate::http::{Connection, Head, post};
use crate::lots::Lots;
use crate::machine::{load, rounded};
use crate::report::Report;
use crate::setting::Setting;

/// How large the flood story is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodStory {
    /// How many requests come at once.
    pub requests: usize,
    /// Most requests that wait.
    pub queue: usize,
    /// Most requests that run.
    pub at_once: usize,
    /// Most tokens of an answer.
    pub max_tokens: u32,
}

/// What one client was told, and after how long.
struct Told {
    what: Answer,
    after: Duration,
}

/// The answers that a client may get.
enum Answer {
    /// The whole result.
    Served,
    /// Come again after a while.
    Refused,
    /// Anything else.
    Wrong(String),
}

/// All that clients were told.
#[derive(Debug, Default)]
struct Tally {
    served: Vec<Duration>,
    refused: Vec<Duration>,
    wrong: Vec<String>,
    most_queued: usize,
    most_running: usize,
}

/// How long what is left of requests may take to go away.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);
/// How often the queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How many answers come between two lines of progress.
const TELL_EVERY: usize = 50;
/// How long open connections may take to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

impl Default for FloodStory {
    fn default() -> Self {
        Self { requests: 500, queue: 64, at_once: 16, max_tokens: 12 }
    }
}

/// Tells the flood story.
pub async fn flood(setting: &Setting, story: FloodStory) -> Result<Report, StoryError> {
    let tune = |deployment: &mut Deployment| {
        deployment.limits.queue_limit = story.queue;
        deployment.limits.max_concurrent = story.at_once;
    };
    let cluster = setting.boot(tune, Arc::new(NoFaults)).await?;
    let listener = Server::reserve(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let server = Server::start(listener, &cluster)?;
    let began = Instant::now();
    let tally = run(setting, &cluster, server.address(), story).await?;
    let seconds = began.elapsed().as_secs_f64();
    let next = ask(&mut Connection::open(server.address()).await?, &request(setting, story, story.requests)).await;
    let held = Held::settled(&cluster, SETTLE_WITHIN).await;

    let mut report = Report::new(json!({
        "story": "flood",
        "fake": setting.fake,
        "seed": setting.seed,
        "requests": story.requests,
        "may_run": story.at_once,
        "may_wait": story.queue,
        "served": tally.served.len(),
        "refused": tally.refused.len(),
        "wrong": tally.wrong.len(),
        "most_running": tally.most_running,
        "most_waiting": tally.most_queued,
        "served_after": spread(&tally.served),
        "refused_after": spread(&tally.refused),
        "held_after": held.json(),
        "seconds": rounded(seconds, 2),
        "load": load(),
    }));
    let (served, wrong, room) = (tally.served.len(), &tally.wrong, story.at_once + story.queue);
    report.must(wrong.is_empty(), || format!("{} wrong answers, the first: {}", wrong.len(), wrong[0]));
    report.must(served >= room.min(story.requests), || format!("{served} served, though there is room for {room}"));
    let floods = !tally.refused.is_empty() || story.requests <= room;
    report.must(floods, || "nobody was refused: the flood was no flood".to_owned());
    let (running, queued) = (tally.most_running, tally.most_queued);
    let bounded = queued <= story.queue && running <= story.at_once;
    report.must(bounded, || format!("{running} ran and {queued} waited, of {} and {}", story.at_once, story.queue));
    report.must(matches!(next, Answer::Served), || "the next request was not served".to_owned());
    report.must(held.nothing(), || "requests that are over still hold something".to_owned());
    server.close(CLOSE_WITHIN).await;
    cluster.shutdown().await;
    Ok(report)
}

/// Sends all requests at one moment, each over a connection of its own.
async fn run(
    setting: &Setting,
    cluster: &Cluster,
    address: SocketAddr,
    story: FloodStory,
) -> Result<Tally, StoryError> {
    let gate = Arc::new(Barrier::new(story.requests));
    let mut clients = JoinSet::new();
    for n in 0..story.requests {
        let mut connection = Connection::open(address).await?;
        let (request, gate) = (request(setting, story, n), Arc::clone(&gate));
        clients.spawn(async move {
            gate.wait().await;
            let began = Instant::now();
            let what = ask(&mut connection, &request).await;
            Told { what, after: began.elapsed() }
        });
    }
    setting.tell(format!("{} clients are connected", story.requests));
    let mut tally = Tally::default();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = looks.tick() => tally.look(cluster).await,
            told = clients.join_next() => match told {
                Some(Ok(told)) => tally.take(setting, told),
                Some(Err(error)) => tally.wrong.push(format!("a client died: {error}")),
                None => return Ok(tally),
            },
        }
    }
}

fn request(setting: &Setting, story: FloodStory, n: usize) -> Vec<u8> {
    let body = json!({
        "model": if setting.fake { "fake" } else { "smollm2" },
        "messages": [{"role": "user", "content": format!("Say something about the number {n}.")}],
        "max_tokens": story.max_tokens,
        "temperature": 0.8,
        "seed": Lots::new(setting.seed, "flood").at(n as u64),
    });
    post("/v1/chat/completions", "application/json", &body.to_string())
}

async fn ask(connection: &mut Connection, request: &[u8]) -> Answer {
    match connection.ask(request).await {
        Ok((head, body)) => judge(&head, &body),
        Err(error) => Answer::Wrong(format!("{error:?}")),
    }
}

/// Returns what an answer is worth.
fn judge(head: &Head, body: &[u8]) -> Answer {
    let wrong = |why: &str| Answer::Wrong(format!("{}, {why}: {}", head.status, String::from_utf8_lossy(body)));
    let Ok(document) = serde_json::from_slice::<Value>(body) else { return wrong("not JSON") };
    match head.status {
        200 if document["choices"][0]["finish_reason"].is_string() => Answer::Served,
        200 => wrong("not a whole completion"),
        503 if head.header("retry-after").is_none_or(|after| after.parse::<u64>().is_err()) => {
            wrong("without Retry-After")
        }
        503 if document["error"]["message"].is_string() => Answer::Refused,
        _ => wrong("neither served nor refused"),
    }
}

/// Returns the least, the median and the largest of some times, in milliseconds.
fn spread(times: &[Duration]) -> Value {
    let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((share * (times.len().saturating_sub(1)) as f64) as usize);
    let at = |share| at(share).map(|&time| rounded(time, 1));
    json!({"least_ms": at(0.0), "p50_ms": at(0.5), "most_ms": at(1.0)})
}

// --- impl Tally ---

impl Tally {
    fn take(&mut self, setting: &Setting, told: Told) {
        match told.what {
            Answer::Served => self.served.push(told.after),
            Answer::Refused => self.refused.push(told.after),
            Answer::Wrong(why) => self.wrong.push(why),
        }
        let (served, refused) = (self.served.len(), self.refused.len());
        if (served + refused).is_multiple_of(TELL_EVERY) {
            setting.tell(format!("{served} served, {refused} refused"));
        }
    }

    async fn look(&mut self, cluster: &Cluster) {
        if let Ok(ingress) = cluster.ingress().snapshot().await {
            self.most_queued = self.most_queued.max(ingress.queued);
            self.most_running = self.most_running.max(ingress.running.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_and_refusals_with_a_time_are_right() {
        let check = |status: &str, headers: &str, body: &str, expected: &str| {
            let head = Head::parse(&format!("HTTP/1.1 {status} X\r\n{headers}")).unwrap();
            let told = match judge(&head, body.as_bytes()) {
                Answer::Served => "served",
                Answer::Refused => "refused",
                Answer::Wrong(_) => "wrong",
            };
            assert_eq!(told, expected, "{status} {headers} {body}");
        };
        check("200", "", r#"{"choices": [{"finish_reason": "length"}]}"#, "served");
        check("200", "", r#"{"choices": []}"#, "wrong");
        check("503", "retry-after: 1", r#"{"error": {"message": "full"}}"#, "refused");
        check("503", "", r#"{"error": {"message": "full"}}"#, "wrong");
        check("500", "", r#"{"error": {"message": "broken"}}"#, "wrong");
        check("200", "", "oops", "wrong");
    }
}
