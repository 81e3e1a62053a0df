//! The recorder behind the `metrics` facade, and what the runtime itself measures.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use mstar_actors::metrics as names;

/// Tensors alive, by rank.
pub const TENSORS: &str = "mstar_tensors_live";
/// Bytes of tensors alive, by rank.
pub const TENSOR_BYTES: &str = "mstar_tensor_bytes";
/// Connections that are open.
pub const CONNECTIONS: &str = "mstar_http_connections";
/// Connections that were refused because too many were open.
pub const CONNECTIONS_REFUSED: &str = "mstar_http_connections_refused_total";

/// Bytes that the process holds in memory.
pub const PROCESS_MEMORY: &str = "process_resident_memory_bytes";
/// The most bytes that it ever held.
pub const PROCESS_PEAK_MEMORY: &str = "mstar_process_peak_memory_bytes";

/// How often histograms are folded.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

/// The process has one recorder, as the facade wants it.
static RECORDER: Mutex<Option<PrometheusHandle>> = Mutex::new(None);

const SECONDS: [f64; 15] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
const ROWS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Returns the process's recorder; the first call installs it.
pub fn recorder() -> Result<PrometheusHandle, BuildError> {
    let mut installed = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*installed {
        return Ok(handle.clone());
    }
    let handle = PrometheusBuilder::new()
        .set_buckets(&SECONDS)?
        .set_buckets_for_metric(Matcher::Full(names::BATCH_ROWS.to_owned()), &ROWS)?
        .install_recorder()?;
    describe();
    *installed = Some(handle.clone());
    Ok(handle)
}

/// Brings the metrics of the process's memory up to date, where the system tells it.
pub(crate) fn note_memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (line, name) in [("VmRSS:", PROCESS_MEMORY), ("VmHWM:", PROCESS_PEAK_MEMORY)] {
        if let Some(bytes) = bytes_of(&status, line) {
            metrics::gauge!(name).set(bytes);
        }
    }
}

/// Returns the value of a line such as `VmRSS: 12 kB`, in bytes.
fn bytes_of(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn describe() {
    metrics::describe_counter!(names::REQUESTS, "Requests, by model and outcome.");
    metrics::describe_gauge!(names::RUNNING, "Requests that run.");
    metrics::describe_gauge!(names::QUEUED, "Requests that wait for admission.");
    metrics::describe_counter!(names::ATTEMPTS, "Requests run again after a loss.");
    metrics::describe_histogram!(names::REQUEST_SECONDS, "Seconds from a request's arrival to its end, by model.");
    let first_output = "Seconds from a request's arrival to its first output, by model.";
    metrics::describe_histogram!(names::FIRST_OUTPUT_SECONDS, first_output);
    metrics::describe_counter!(names::STEPS, "Steps done, by node.");
    metrics::describe_counter!(names::BATCHES, "Batches run, by node and op.");
    metrics::describe_counter!(names::ROWS, "Rows of batches, by node and op.");
    metrics::describe_histogram!(names::BATCH_ROWS, "Rows of a batch, by node.");
    metrics::describe_histogram!(names::BATCH_SECONDS, "Seconds that a batch ran, by node.");
    metrics::describe_histogram!(names::STEP_WAIT_SECONDS, "Seconds that a step waited for its batch, by node.");
    metrics::describe_gauge!(names::KV_PAGES_USED, "KV pages in use, by node.");
    metrics::describe_gauge!(names::KV_PAGES, "KV pages in all, by node.");
    metrics::describe_gauge!(names::KV_PAGES_CACHED, "KV pages that nobody uses and whose tokens are known, by node.");
    metrics::describe_counter!(names::PROMPT_TOKENS, "Tokens that sequences began with, by node.");
    metrics::describe_counter!(names::REUSED_TOKENS, "Those of them whose keys and values were known, by node.");
    metrics::describe_gauge!(names::SEQUENCES, "Sequences or states that an engine keeps, by node.");
    metrics::describe_counter!(names::ITEMS, "Items sent into streams, by producing node.");
    metrics::describe_counter!(names::RESTARTS, "Restarts of node actors, by node.");
    metrics::describe_gauge!(names::UP, "Whether a node is up, by node.");
    metrics::describe_gauge!(PROCESS_MEMORY, "Bytes that the process holds in memory.");
    metrics::describe_gauge!(PROCESS_PEAK_MEMORY, "The most bytes that the process ever held in memory.");
    metrics::describe_gauge!(TENSORS, "Tensors alive, by rank.");
    metrics::describe_gauge!(TENSOR_BYTES, "Bytes of tensors alive, by rank.");
    metrics::describe_counter!(mstar_gateway::ANSWERS, "Answers, by endpoint and status.");
    metrics::describe_gauge!(CONNECTIONS, "Connections that are open.");
    metrics::describe_counter!(CONNECTIONS_REFUSED, "Connections refused because too many were open.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_systems_lines() {
        let status = "Name:\tmstar\nVmHWM:\t   2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((bytes_of(status, "VmRSS:"), bytes_of(status, "VmHWM:")), (Some(1_048_576.0), Some(2_097_152.0)));
        assert_eq!(bytes_of("VmRSS: much", "VmRSS:"), None);
    }
}
