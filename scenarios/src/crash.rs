//! The crash story: node actors die at random under mixed requests, and every client gets the bytes that it would have
//! got.

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::Failure;
use mstar_runtime::Cluster;
use serde_json::json;
use tokio::time::Instant;

use crate::asks::Asks;
use crate::dice::Dice;
use crate::error::StoryError;
use crate::held::Held;
use crate::machine::{load, rounded};
use crate::reply::{Reply, side_by_side};
use crate::report::Report;
use crate::setting::{Setting, patient};

/// How large the crash story is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashStory {
    /// How many requests are asked, once without and once with deaths.
    pub requests: usize,
    /// How often a node actor dies.
    pub panics: u32,
    /// Most requests at a time.
    pub at_once: usize,
    /// Most tokens of an answer.
    pub max_tokens: u32,
}

/// What the disturbed run gave, compared with the undisturbed one.
#[derive(Debug, Default)]
struct Outcome {
    lost: usize,
    different: usize,
    miscounted: usize,
    first: Option<String>,
}

/// How long what is left of requests may take to go away.
const SETTLE_WITHIN: Duration = Duration::from_secs(20);
/// How many requests pass between two lines of progress.
const TELL_EVERY: usize = 25;

impl Default for CrashStory {
    fn default() -> Self {
        Self { requests: 200, panics: 50, at_once: 16, max_tokens: 12 }
    }
}

/// Tells the crash story.
pub async fn crash(setting: &Setting, story: CrashStory) -> Result<Report, StoryError> {
    let dice = Arc::new(Dice::default());
    let tune = |deployment: &mut mstar_config::Deployment| deployment.supervision = patient();
    let cluster = Arc::new(setting.boot(tune, Arc::clone(&dice) as _).await?);
    let asks = Arc::new(Asks::new(setting, &cluster, story.max_tokens).await?);
    let began = Instant::now();
    let calm = calm_run(setting, &asks, story).await?;
    let calm_seconds = began.elapsed().as_secs_f64();

    let empty = calm.iter().filter(|reply| !reply.says_something()).count();
    let before = lives(&cluster);
    dice.aim(setting.seed, story.panics);
    let began = Instant::now();
    let outcome = disturbed_run(setting, &asks, story, &calm).await;
    let seconds = began.elapsed().as_secs_f64();

    let held = Held::settled(&cluster, SETTLE_WITHIN).await;
    let (panics, restarts) = (dice.struck().values().sum::<u32>(), lives(&cluster) - before);
    let mut report = Report::new(json!({
        "story": "crash",
        "fake": setting.fake,
        "seed": setting.seed,
        "requests": story.requests,
        "kinds": asks.kinds(),
        "panics": panics,
        "panics_at": {"nodes": dice.struck(), "points": dice.points()},
        "restarts": restarts,
        "lost": outcome.lost,
        "different": outcome.different,
        "usage_different": outcome.miscounted,
        "empty": empty,
        "held_after": held.json(),
        "undisturbed_seconds": rounded(calm_seconds, 2),
        "seconds": rounded(seconds, 2),
        "load": load(),
    }));
    // A model may have nothing to say, but not often.
    report.must(empty * 10 <= story.requests, || format!("{empty} undisturbed replies are empty"));
    report.must(outcome.lost == 0, || format!("{} requests were lost", outcome.lost));
    report.must(outcome.different == 0, || format!("{} replies differ", outcome.different));
    let counted = outcome.miscounted == 0;
    report.must(counted, || format!("{} replies count other tokens or end otherwise", outcome.miscounted));
    report.must(outcome.first.is_none(), || format!("the first: {}", outcome.first.unwrap_or_default()));
    report.must(panics == story.panics, || format!("only {panics} of {} strikes were met", story.panics));
    report.must(restarts == u64::from(panics), || format!("{panics} panics led to {restarts} restarts"));
    report.must(held.nothing(), || "requests that are over still hold something".to_owned());
    setting.end(cluster, asks).await;
    Ok(report)
}

/// Serves all requests while nobody dies.
async fn calm_run(setting: &Setting, asks: &Arc<Asks>, story: CrashStory) -> Result<Vec<Reply>, StoryError> {
    let mut calm = vec![Reply::default(); story.requests];
    let (mut failed, mut ended) = (None, 0);
    let serve = |n| served(Arc::clone(asks), n);
    side_by_side(story.requests, story.at_once, serve, |n, reply| {
        progress(setting, "undisturbed", &mut ended, story.requests);
        match reply {
            Ok(reply) => calm[n] = reply,
            Err(failure) => failed = Some(failure),
        }
    })
    .await;
    match failed {
        Some(source) => Err(StoryError::Request { what: "an undisturbed request", source }),
        None => Ok(calm),
    }
}

/// Serves them again while node actors die.
async fn disturbed_run(setting: &Setting, asks: &Arc<Asks>, story: CrashStory, calm: &[Reply]) -> Outcome {
    let (mut outcome, mut ended) = (Outcome::default(), 0);
    let serve = |n| served(Arc::clone(asks), n);
    side_by_side(story.requests, story.at_once, serve, |n, reply| {
        progress(setting, "disturbed", &mut ended, story.requests);
        let what = || format!("request {n} ({})", asks.kinds()[asks.kind(n)]);
        let wrong = match reply {
            Err(failure) => {
                outcome.lost += 1;
                Some(format!("{}: {failure}", what()))
            }
            Ok(reply) => {
                let difference = calm[n].difference(&reply);
                outcome.different += usize::from(difference.is_some());
                let counted = (reply.usage, reply.finish) == (calm[n].usage, calm[n].finish);
                outcome.miscounted += usize::from(!counted);
                difference.map(|difference| format!("{}: {difference}", what()))
            }
        };
        outcome.first = outcome.first.take().or(wrong);
    })
    .await;
    // Whoever was served without telling is lost as well.
    outcome.lost += story.requests - ended;
    outcome
}

async fn served(asks: Arc<Asks>, n: usize) -> Result<Reply, Failure> {
    asks.reply(n).await
}

fn progress(setting: &Setting, run: &str, ended: &mut usize, of: usize) {
    *ended += 1;
    if (*ended).is_multiple_of(TELL_EVERY) || *ended == of {
        setting.tell(format!("{run}: {ended} of {of}"));
    }
}

/// Returns how often node actors were started, all together.
fn lives(cluster: &Cluster) -> u64 {
    let routes = cluster.routes();
    routes.nodes().filter_map(|node| routes.incarnation(node)).map(|incarnation| incarnation.0).sum()
}
