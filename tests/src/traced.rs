//! The story of a traced request, told once per transport: real requests go in, and the tree of their spans must stand
//! at a real collector.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mstar_runtime::{OtlpSettings, Telemetry, TelemetrySettings};
use reqwest::Response;

use crate::House;
use crate::collector::{Collector, Span};
use crate::house::Outcome;

/// How spans travel to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP.
    Http,
}

const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Tells the story. Only once per process: telemetry is the process's.
pub async fn story(transport: Transport, folder: &Path) -> Outcome {
    let collector = Collector::start(folder).await?;
    let endpoint = if transport == Transport::Grpc { collector.grpc() } else { collector.http() };
    let http = transport == Transport::Http;
    let otlp = OtlpSettings { endpoint: endpoint.clone(), http, sample_ratio: 1.0, service_name: "house".to_owned() };
    let settings = TelemetrySettings { log: "off".to_owned(), log_json: false, colour: false, otlp: Some(otlp) };
    let telemetry = Telemetry::start(&settings)?;
    let house = House::boot(&format!("[tracing]\nendpoint = \"{endpoint}\"\n")).await?;

    let with = converse(&house, Some(CLIENT)).await?;
    let without = converse(&house, None).await?;
    let unsampled = converse(&house, Some(UNSAMPLED)).await?;
    house.idle().await?;
    house.close().await;
    tokio::task::spawn_blocking(move || telemetry.shutdown()).await?;

    let requests = |spans: &[Span]| spans.iter().filter(|span| span.name == "request").count();
    let spans = collector.until("two requests", |spans| requests(spans) >= 2).await?;
    let parents: BTreeSet<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(parents, BTreeSet::from(["request", "walk", "step", "chunk", "batch"]), "and no other spans");
    assert_eq!(requests(&spans), 2);
    assert_eq!(unsampled.trace, trace_of(UNSAMPLED), "an unsampled trace is passed on");

    let root = check_tree(&spans, &with);
    assert_eq!((root.trace.as_str(), root.parent.as_str()), (trace_of(CLIENT), "b7ad6b7169203331"));
    let root = check_tree(&spans, &without);
    assert_eq!(root.parent, "", "a request without a trace begins one");
    Ok(())
}

/// What an answer says of its request.
struct Told {
    id: String,
    trace: String,
    span: String,
}

fn trace_of(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or_default()
}

async fn converse(house: &House, traceparent: Option<&str>) -> Outcome<Told> {
    let fields = [
        ("text", "tell me a story"),
        ("output_modalities", "text,audio"),
        ("model_kwargs", r#"{"walk": "converse", "temperature": 0, "max_output_tokens": 24}"#),
    ];
    let mut request = house.post("/generate").form(&fields);
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let response = request.send().await?.error_for_status()?;
    let header = |response: &Response, name: &str| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.map(str::to_owned).ok_or_else(|| format!("no {name}"))
    };
    let (id, traceparent) = (header(&response, "x-request-id")?, header(&response, "traceparent")?);
    response.bytes().await?;
    let parts: Vec<&str> = traceparent.split('-').collect();
    Ok(Told { id, trace: parts[1].to_owned(), span: parts[2].to_owned() })
}

/// Checks the tree of a request's spans and returns its root.
fn check_tree<'a>(spans: &'a [Span], told: &Told) -> &'a Span {
    let own: Vec<&Span> = spans.iter().filter(|span| span.trace == told.trace).collect();
    let ids: BTreeMap<&str, &str> = own.iter().map(|span| (span.id.as_str(), span.name.as_str())).collect();
    let named = |name: &str| -> Vec<&Span> { own.iter().copied().filter(|span| span.name == name).collect() };
    let requests = named("request");
    assert_eq!(requests.len(), 1);
    let root = requests[0];
    assert_eq!(root.id, told.span, "the answer names the request's span");
    assert_eq!((root.attributes["request.id"].as_str(), root.attributes["outcome"].as_str()), (&*told.id, "done"));

    let walks: BTreeSet<&str> = named("walk").iter().map(|span| span.attributes["walk"].as_str()).collect();
    assert_eq!(walks, BTreeSet::from(["converse", "cut", "utter"]));
    for (name, parent) in [("walk", "request"), ("step", "walk"), ("chunk", "step")] {
        let children = named(name);
        assert!(!children.is_empty(), "no {name}");
        for child in children {
            assert_eq!(ids.get(child.parent.as_str()), Some(&parent), "{name} {} hangs elsewhere", child.id);
        }
    }
    assert!(named("chunk").iter().all(|chunk| chunk.attributes.contains_key("items")));

    let batches: Vec<&Span> = spans.iter().filter(|span| span.name == "batch").collect();
    for step in named("step") {
        for key in ["node", "op", "incarnation", "rows", "wait_us", "run_us"] {
            assert!(step.attributes.contains_key(key), "a step without {key}: {step:?}");
        }
        let linked = batches.iter().any(|batch| batch.links.contains(&step.id));
        assert!(linked, "step {} is in no batch", step.id);
    }
    for batch in batches {
        assert!(batch.parent.is_empty() && !batch.links.is_empty(), "a batch is linked, no child: {batch:?}");
        for key in ["node", "op", "rank", "rows", "wait_us", "run_us"] {
            assert!(batch.attributes.contains_key(key), "a batch without {key}: {batch:?}");
        }
    }
    root
}
