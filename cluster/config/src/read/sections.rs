//! The tables of numbers and switches.

use std::time::Duration;

use crate::fields::{Complaint, Fields};
use crate::{Http, Limits, Log, LogFormat, Metrics, OnStuck, Protocol, Supervision, Tracing};

/// Longest time that a number of seconds may mean: a week.
const WEEK_S: f64 = 604_800.0;

pub(super) fn limits(mut fields: Fields<'_>) -> Limits {
    let default = Limits::default();
    let limits = Limits {
        queue_limit: fields.whole("queue_limit", 0..=1_000_000).unwrap_or(default.queue_limit),
        max_concurrent: fields.whole("max_concurrent", 1..=100_000).unwrap_or(default.max_concurrent),
        body_bytes: fields.size("body_bytes", 4 << 30).map_or(default.body_bytes, |at| at.value as usize),
        audio_seconds: fields.whole("audio_seconds", 1..=604_800).unwrap_or(default.audio_seconds),
        max_output_tokens: fields.whole("max_output_tokens", 1..=1_000_000).unwrap_or(default.max_output_tokens),
        request_deadline: seconds(&mut fields, "request_deadline_s").unwrap_or(default.request_deadline),
        retry_after_s: fields.whole("retry_after_s", 0..=86_400).unwrap_or(default.retry_after_s),
        client_credit: fields.whole("client_credit", 1..=65_536).unwrap_or(default.client_credit),
        drain: seconds(&mut fields, "drain_s").unwrap_or(default.drain),
    };
    fields.finish();
    limits
}

/// Reads `[http]`, given the bound on one body.
pub(super) fn http(mut fields: Fields<'_>, body_bytes: usize) -> Http {
    let default = Http::beside(body_bytes);
    let http = Http {
        max_connections: fields.whole("max_connections", 1..=1_000_000).unwrap_or(default.max_connections),
        header_timeout: seconds(&mut fields, "header_timeout_s").unwrap_or(default.header_timeout),
        bodies_bytes: bodies(&mut fields, body_bytes).unwrap_or(default.bodies_bytes),
        body_timeout: seconds(&mut fields, "body_timeout_s").unwrap_or(default.body_timeout),
        body_stall: seconds(&mut fields, "body_stall_s").unwrap_or(default.body_stall),
        reader_stall: seconds(&mut fields, "reader_stall_s").unwrap_or(default.reader_stall),
    };
    fields.finish();
    http
}

/// Reads how many bytes all bodies may have together: no fewer than one of them.
fn bodies(fields: &mut Fields<'_>, body_bytes: usize) -> Option<usize> {
    let at = fields.size("bodies_bytes", 1 << 40)?;
    if at.value < body_bytes as u64 {
        let complaint = Complaint::new(format!("a body may have {body_bytes} bytes, which is more than all may have"));
        fields.complain(&at.span, "bodies_bytes", complaint.allowed("at least limits.body_bytes"));
    }
    Some(at.value as usize)
}

pub(super) fn tracing(mut fields: Fields<'_>) -> Tracing {
    let default = Tracing::default();
    let endpoint = fields.text("endpoint");
    if let Some(at) =
        endpoint.as_ref().filter(|at| !at.value.starts_with("http://") && !at.value.starts_with("https://"))
    {
        let complaint = Complaint::new(format!("`{}` is no endpoint", at.value));
        fields.complain(&at.span, "endpoint", complaint.allowed("a URL, such as http://127.0.0.1:4317"));
    }
    let tracing = Tracing {
        endpoint: endpoint.map(|at| at.value.to_owned()),
        protocol: fields
            .choice("protocol", &[("grpc", Protocol::Grpc), ("http", Protocol::Http)])
            .unwrap_or(default.protocol),
        sample_ratio: fields.number("sample_ratio", 0.0..=1.0).map_or(default.sample_ratio, |at| at.value),
        service_name: fields.text("service_name").map(|at| at.value.to_owned()),
    };
    fields.finish();
    tracing
}

pub(super) fn log(mut fields: Fields<'_>) -> Log {
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let log = Log { format: fields.choice("format", &formats).unwrap_or(Log::default().format) };
    fields.finish();
    log
}

pub(super) fn metrics(mut fields: Fields<'_>) -> Metrics {
    let metrics = Metrics { enabled: fields.flag("enabled").unwrap_or(Metrics::default().enabled) };
    fields.finish();
    metrics
}

pub(super) fn supervision(mut fields: Fields<'_>) -> Supervision {
    let default = Supervision::default();
    let millis = |fields: &mut Fields<'_>, key| fields.whole(key, 0..=3_600_000).map(Duration::from_millis);
    let supervision = Supervision {
        max_restarts: fields.whole("max_restarts", 0..=1_000_000).unwrap_or(default.max_restarts),
        within: seconds(&mut fields, "within_s").unwrap_or(default.within),
        backoff_min: millis(&mut fields, "backoff_min_ms").unwrap_or(default.backoff_min),
        backoff_max: millis(&mut fields, "backoff_max_ms").unwrap_or(default.backoff_max),
        stuck_after: seconds(&mut fields, "stuck_after_s").unwrap_or(default.stuck_after),
        on_stuck: fields
            .choice("on_stuck", &[("report", OnStuck::Report), ("restart", OnStuck::Restart)])
            .unwrap_or(default.on_stuck),
    };
    if supervision.backoff_min > supervision.backoff_max {
        let (least, most) = (supervision.backoff_min, supervision.backoff_max);
        let what = format!("the first pause, {least:?}, is longer than the longest, {most:?}");
        fields.complain(&fields.span().clone(), "backoff_min_ms", Complaint::new(what));
    }
    fields.finish();
    supervision
}

fn seconds(fields: &mut Fields<'_>, key: &'static str) -> Option<Duration> {
    fields.number(key, 0.001..=WEEK_S).map(|at| Duration::from_secs_f64(at.value))
}
