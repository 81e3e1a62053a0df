//! Logs to standard error, spans to an OTLP collector.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// How to log and where to send spans.
#[derive(Clone, Debug)]
pub struct TelemetrySettings {
    /// What to log, in the syntax of `RUST_LOG`.
    pub log: String,
    /// Log lines as JSON.
    pub log_json: bool,
    /// Log in colour.
    pub colour: bool,
    /// The collector; without one no span is made.
    pub otlp: Option<OtlpSettings>,
}

/// Where spans go.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// `http://host:4317` for gRPC; for HTTP `http://host:4318`, or with a path of its own in the place of `/v1/traces`.
    pub endpoint: String,
    /// Speak HTTP with protobuf bodies instead of gRPC.
    pub http: bool,
    /// The share of traces recorded, where the client's trace context does not decide.
    pub sample_ratio: f64,
    /// The name that traces are filed under.
    pub service_name: String,
}

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter cannot be read.
    #[error("log filter {filter:?}")]
    Filter {
        /// The filter.
        filter: String,
        /// Why.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter cannot be built.
    #[error("span exporter for {endpoint}")]
    Exporter {
        /// The collector.
        endpoint: String,
        /// Why.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// Something else in the process logs already.
    #[error("telemetry was set up before: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Flushes what is not yet exported when it is shut down.
#[derive(Debug, Default)]
pub struct Telemetry(Option<SdkTracerProvider>);

/// How long the last export may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

impl Telemetry {
    /// Sets up logging and exporting for the whole process. Call within the tokio runtime.
    pub fn start(settings: &TelemetrySettings) -> Result<Self, TelemetryError> {
        // The actor library tells of every message; who wants that asks for it by name.
        let filter = EnvFilter::try_new(format!("ractor=warn,{}", settings.log))
            .map_err(|source| TelemetryError::Filter { filter: settings.log.clone(), source })?;
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
        let lines = lines.with_ansi(settings.colour);
        let lines = if settings.log_json { lines.json().boxed() } else { lines.boxed() };
        let provider = settings.otlp.as_ref().map(provider).transpose()?;
        let spans = provider.as_ref().map(|provider| {
            let layer = tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("mstar"))
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false);
            // Only our own spans: the actor library's spans last as long as an actor and would become roots.
            layer.with_filter(
                Targets::new()
                    .with_default(LevelFilter::OFF)
                    .with_target(mstar_actors::trace::TARGET, LevelFilter::DEBUG),
            )
        });
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans).try_init()?;
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self(provider))
    }

    /// Exports what is left, within a bound of time.
    pub fn shutdown(self) {
        let Some(provider) = self.0 else { return };
        if let Err(error) = provider.shutdown_with_timeout(FLUSH_WITHIN) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

fn provider(otlp: &OtlpSettings) -> Result<SdkTracerProvider, TelemetryError> {
    let builder = SpanExporter::builder();
    let exporter = if otlp.http {
        builder.with_http().with_protocol(Protocol::HttpBinary).with_endpoint(traces_of(&otlp.endpoint)).build()
    } else {
        builder.with_tonic().with_endpoint(&otlp.endpoint).build()
    };
    let exporter = exporter.map_err(|source| TelemetryError::Exporter { endpoint: otlp.endpoint.clone(), source })?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(otlp.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(Resource::builder().with_service_name(otlp.service_name.clone()).build())
        .build())
}

/// Returns where traces go at a collector over HTTP: its usual path, where the endpoint names none.
fn traces_of(endpoint: &str) -> String {
    let host = endpoint.trim_end_matches('/');
    let names_path = host.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if names_path { endpoint.to_owned() } else { format!("{host}/v1/traces") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_the_usual_one() {
        assert_eq!(traces_of("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces_of("http://127.0.0.1:4318/"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(traces_of("https://host/otlp/v1/traces"), "https://host/otlp/v1/traces");
    }
}
