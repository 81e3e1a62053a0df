//! The stories in small, on the scripted model.

use mstar_scenarios::{CrashStory, FloodStory, HttpOverhead, Report, Setting, crash, flood, http_overhead};

#[track_caller]
fn holds(report: &Report) {
    assert!(report.holds(), "{:#}", report.document());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_actors_die_and_no_byte_differs() {
    let report = crash(&Setting::new(true, 3), CrashStory { requests: 30, panics: 10, ..CrashStory::default() }).await;
    let report = report.unwrap();
    holds(&report);
    assert_eq!(report.figures()["panics"], 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_refused_beyond_the_queue() {
    let story = FloodStory { requests: 60, queue: 8, at_once: 4, max_tokens: 40 };
    holds(&flood(&Setting::new(true, 3), story).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_over_http_counts_every_token() {
    let figures = http_overhead(HttpOverhead { requests: 32, tokens: 40 }).await.unwrap();
    assert_eq!(figures["streamed_token"][1]["tokens"], 640);
    assert!(figures["trivial_request"][0]["requests_per_s"].as_f64().unwrap() > 0.0, "{figures}");
}
