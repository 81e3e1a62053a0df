//! An OpenTelemetry collector in a process of its own: the public `rotel`, fetched from PyPI, which writes down every
//! span that it receives.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::house::Outcome;

/// A collector that runs; dropped, it is stopped.
pub struct Collector {
    process: Child,
    grpc: SocketAddr,
    http: SocketAddr,
    written: Arc<Mutex<Vec<String>>>,
}

/// A span as the collector received it.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// The id of its parent; empty for a root.
    pub parent: String,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// The ids of the spans that it is linked to.
    pub links: Vec<String>,
}

/// The package, and its version.
const PACKAGE: &str = "rotel==0.0.1a15";
/// How long it may take to start, or to write down what it was sent.
const WITHIN: Duration = Duration::from_secs(20);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

// --- impl Collector ---

impl Collector {
    /// Starts one; installs it below `folder` if it is not there.
    pub async fn start(folder: &Path) -> Outcome<Self> {
        let agent = installed(folder)?;
        let (grpc, http) = (free_port()?, free_port()?);
        let mut process = Command::new(agent)
            .args(["start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-grpc-endpoint", &grpc.to_string(), "--otlp-http-endpoint", &http.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("no output")?);
        let written = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&written);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                writes.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let collector = Self { process, grpc, http, written };
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        tokio::time::timeout(WITHIN, async {
            while [grpc, http].iter().any(|address| TcpStream::connect(address).is_err()) {
                ticks.tick().await;
            }
        })
        .await?;
        Ok(collector)
    }

    /// Returns the endpoint for OTLP over gRPC.
    pub fn grpc(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Returns the endpoint for OTLP over HTTP.
    pub fn http(&self) -> String {
        format!("http://{}/v1/traces", self.http)
    }

    /// Waits until the spans received are as wanted and no more come, and returns them.
    pub async fn until(&self, what: &str, wanted: impl Fn(&[Span]) -> bool) -> Outcome<Vec<Span>> {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        let looking = async {
            let mut before = 0;
            loop {
                ticks.tick().await;
                let spans = self.spans();
                if wanted(&spans) && spans.len() == before {
                    return spans;
                }
                before = spans.len();
            }
        };
        tokio::time::timeout(WITHIN, looking).await.map_err(|_| format!("no {what} in {:#?}", self.spans()).into())
    }

    fn spans(&self) -> Vec<Span> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        parse(written.iter().map(String::as_str))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

/// Returns the collector's program, installed into an environment of its own.
fn installed(folder: &Path) -> Outcome<PathBuf> {
    let home = folder.join("collector");
    let find = || {
        let packages = std::fs::read_dir(home.join("lib")).into_iter().flatten().flatten();
        let agents = packages.map(|python| python.path().join("site-packages/rotel/rotel-agent"));
        agents.into_iter().find(|agent| agent.is_file())
    };
    if let Some(agent) = find() {
        return Ok(agent);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    run(Command::new(home.join("bin/python")).args(["-m", "pip", "install", "-q", "--no-deps", PACKAGE]))?;
    find().ok_or_else(|| format!("{PACKAGE} has no rotel-agent").into())
}

fn run(command: &mut Command) -> Outcome {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Reads what the collector writes of spans.
fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut in_span = false;
    for line in lines.map(str::trim) {
        if line.starts_with("Span #") {
            spans.push(Span::default());
            in_span = true;
            continue;
        }
        in_span &= !line.starts_with("ResourceSpans #") && !line.starts_with("ScopeSpans #");
        let Some(span) = spans.last_mut().filter(|_| in_span) else { continue };
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().to_owned();
        match key.trim() {
            "Trace ID" => span.trace = value,
            "Parent ID" => span.parent = value,
            "ID" => span.id = value,
            "Name" => span.name = value,
            "-> ID" => span.links.push(value),
            "-> Trace ID" | "-> TraceState" | "-> DroppedAttributesCount" => {}
            key => {
                // An attribute, as `-> key: Type(value)`.
                if let (Some(name), Some((_, text))) = (key.strip_prefix("-> "), value.split_once('(')) {
                    span.attributes.insert(name.to_owned(), text.trim_end_matches(')').to_owned());
                }
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_collector_writes_is_read() {
        let text = "ResourceSpans #0\n     -> service.name: Str(x)\nScopeSpans #0\nInstrumentationScope mstar \nSpan #0\n    \
            Trace ID       : 0a\n    Parent ID      : b1\n    ID             : c2\n    Name           : step\nStart time: 1\n\
            Attributes:\n     -> wait_us: Int(5)\n     -> rank: Str(cpu0)\nLinks:\nSpanLink #0\n     -> Trace ID: 0a\n     \
            -> ID: d3\n     -> TraceState: \nSpan #1\n    Name           : walk\n";
        let spans = parse(text.lines());
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["step", "walk"]);
        let span = &spans[0];
        assert_eq!((span.trace.as_str(), span.parent.as_str(), span.id.as_str()), ("0a", "b1", "c2"));
        assert_eq!((span.attributes["wait_us"].as_str(), span.attributes["rank"].as_str()), ("5", "cpu0"));
        assert_eq!(span.links, ["d3"]);
    }
}
