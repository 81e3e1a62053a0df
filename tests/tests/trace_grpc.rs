//! Spans of real requests at a real collector, over OTLP/gRPC.

use std::path::Path;

use mstar_tests::house::Outcome;
use mstar_tests::traced::{Transport, story};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_one_trace_over_grpc() -> Outcome {
    story(Transport::Grpc, Path::new(env!("CARGO_TARGET_TMPDIR"))).await
}
