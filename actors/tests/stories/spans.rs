//! A request is one trace: `request` -> `walk` -> `step` -> `chunk`, with `batch` linked to the steps in it.

use std::collections::HashMap;
use std::sync::Arc;

use mstar_actors::Submit;
use mstar_contract::TraceContext;
use opentelemetry::trace::{SpanId, TraceId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::ask::{read, request};
use crate::life::timed;
use crate::world::{Setup, World};

const TRACE: u128 = 0xfeed;
const CLIENT: u64 = 7;

fn exporter() -> InMemorySpanExporter {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let ours = Targets::new().with_target(mstar_actors::trace::TARGET, LevelFilter::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("mstar")).with_filter(ours);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).expect("no other test sets it");
    exporter
}

fn field(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|pair| pair.key.as_str() == name).map(|pair| pair.value.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_request_is_one_trace_from_the_client_down_to_its_chunks() {
    let exporter = exporter();
    let world = World::start(Setup { settings: timed(), ..Setup::default() }).await;
    world.reply("converse", "unseen").await;
    let trace = TraceContext { trace_id: TRACE, span_id: CLIENT, sampled: true };
    let (request, served) = (Arc::new(request("converse", "go on")), Arc::clone(&world.served));
    let submit = Submit { request, served, deadline: None, trace };
    let (_, summary) = read(world.ingress.submit(submit).await.unwrap()).await.unwrap();
    world.assert_empty().await;

    let spans = exporter.get_finished_spans().unwrap();
    let mine: Vec<&SpanData> =
        spans.iter().filter(|span| span.span_context.trace_id() == TraceId::from(TRACE)).collect();
    let name_of: HashMap<SpanId, &str> = mine.iter().map(|span| (span.span_context.span_id(), &*span.name)).collect();
    let count = |name: &str| mine.iter().filter(|span| span.name == name).count();
    for span in &mine {
        let parent = name_of.get(&span.parent_span_id).copied();
        match &*span.name {
            "request" => assert_eq!(span.parent_span_id, SpanId::from(CLIENT)),
            "walk" => assert_eq!(parent, Some("request")),
            "step" => assert_eq!(parent, Some("walk")),
            "chunk" => assert_eq!(parent, Some("step")),
            other => panic!("a span {other}"),
        }
    }
    assert_eq!((count("request"), count("walk")), (1, 3));
    let decoded = mine.iter().filter(|span| field(span, "op").as_deref() == Some("decode")).count();
    assert_eq!(decoded + 1, summary.usage.completion_tokens as usize);
    assert!(count("chunk") > 2);
    let step = mine.iter().find(|span| span.name == "step").unwrap();
    assert!(field(step, "wait_us").is_some() && field(step, "rows").is_some() && field(step, "incarnation").is_some());

    let batches: Vec<&SpanData> = spans.iter().filter(|span| span.name == "batch").collect();
    let linked: usize = batches.iter().map(|batch| batch.links.iter().count()).sum();
    assert_eq!(linked, count("step"), "every step was in one batch");
    assert!(batches.iter().all(|batch| field(batch, "rank").as_deref() == Some("cpu0")));
    let strangers = spans.iter().filter(|span| span.name != "batch").count() - mine.len();
    assert_eq!(strangers, 0, "a request that is not sampled has no span");
}
