//! The cancel story in small, in a process of its own: it looks at the memory of all that runs beside it.

use mstar_scenarios::{CancelStory, Setting, cancel};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_go_away_and_nothing_is_left_of_them() {
    let report = cancel(&Setting::new(true, 3), CancelStory { requests: 200, ..CancelStory::default() }).await.unwrap();
    assert!(report.holds(), "{:#}", report.document());
    let count = |name: &str| report.figures()[name].as_u64().unwrap();
    assert!(count("dropped") >= 80 && count("served") >= 100, "{:#}", report.document());
}
