//! A client of the native endpoint: sends one request, hands over what streams back, and keeps the times.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::multipart::{Form, Part};
use serde_json::{Map, Value};
use tokio::time::Instant;

/// A server to talk to.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: String,
    api_key: Option<String>,
}

/// What to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompt {
    /// The model.
    pub(crate) model: String,
    /// Text.
    pub(crate) text: Option<String>,
    /// A recording: its file name and its bytes.
    pub(crate) audio: Option<(String, Vec<u8>)>,
    /// Wanted outputs.
    pub(crate) outputs: Vec<String>,
    /// Options for the model.
    pub(crate) options: Map<String, Value>,
}

/// One thing that streamed back.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// What it is: `text`, `audio`, `detail`.
    pub(crate) modality: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What to know besides.
    pub(crate) metadata: Value,
    /// When it came, after the request was sent.
    pub(crate) after: Duration,
}

/// How a request went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// The request's id at the server.
    pub(crate) request_id: String,
    /// Its trace, when the server records one.
    pub(crate) traceparent: Option<String>,
    /// How long it took.
    pub(crate) total: Duration,
}

// --- impl Line ---

impl Line {
    /// Returns what a recording in the request was found to say, when the line tells that: the one detail in plain text.
    pub(crate) fn transcript(&self) -> Option<&str> {
        let plain = self.modality == "detail" && self.metadata["port"].is_null();
        if plain { std::str::from_utf8(&self.bytes).ok() } else { None }
    }
}

/// Longest line accepted from a server, in bytes.
const MAX_LINE: usize = 64 << 20;

impl Client {
    /// Returns a client of this server.
    pub(crate) fn new(server: &str, api_key: Option<String>) -> Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(10)).build()?;
        let scheme = if server.contains("://") { "" } else { "http://" };
        Ok(Self { http, server: format!("{scheme}{}", server.trim_end_matches('/')), api_key })
    }

    /// Sends a request and calls `on_line` for all that streams back.
    pub(crate) async fn generate(
        &self,
        prompt: &Prompt,
        mut on_line: impl FnMut(&Line) -> Result<()>,
    ) -> Result<Ended> {
        let mut form = Form::new()
            .text("model", prompt.model.clone())
            .text("output_modalities", prompt.outputs.join(","))
            .text("streaming", "true")
            .text("model_kwargs", Value::Object(prompt.options.clone()).to_string());
        if let Some(text) = &prompt.text {
            form = form.text("text", text.clone());
        }
        if let Some((name, bytes)) = &prompt.audio {
            form = form.part("files", Part::bytes(bytes.clone()).file_name(name.clone()));
        }
        let mut request = self.http.post(format!("{}/generate", self.server)).multipart(form);
        if let Some(key) = &self.api_key {
            request = request.bearer_auth(key);
        }
        let sent = Instant::now();
        let response = request
            .send()
            .await
            .with_context(|| format!("no answer from {}; `mstar serve` starts a server", self.server))?;
        let mut response = refuse_errors(response).await?;
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let mut ended = Ended {
            request_id: header("x-request-id").unwrap_or_default(),
            traceparent: header("traceparent"),
            total: Duration::ZERO,
        };
        let mut pending = Vec::new();
        while let Some(chunk) = response.chunk().await.context("the answer broke off")? {
            pending.extend_from_slice(&chunk);
            while let Some(at) = pending.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = pending.drain(..=at).collect();
                on_line(&parse_line(&line, sent.elapsed())?)?;
            }
            if pending.len() > MAX_LINE {
                bail!("the server sent a line of more than {MAX_LINE} bytes");
            }
        }
        ended.total = sent.elapsed();
        Ok(ended)
    }
}

async fn refuse_errors(response: reqwest::Response) -> Result<reqwest::Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.bytes().await.unwrap_or_default();
    let told = serde_json::from_slice::<Value>(&body)
        .ok()
        .and_then(|v| v["error"]["message"].as_str().map(str::to_owned))
        .unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    Err(anyhow!("{status}: {told}"))
}

fn parse_line(line: &[u8], after: Duration) -> Result<Line> {
    let value: Value = serde_json::from_slice(line).context("the server sent a line that is not JSON")?;
    let modality = value["modality"].as_str().unwrap_or_default().to_owned();
    let bytes = STANDARD.decode(value["data"].as_str().unwrap_or_default()).context("a line's data is not base64")?;
    if modality == "error" {
        bail!("{}", String::from_utf8_lossy(&bytes));
    }
    Ok(Line { modality, bytes, metadata: value["metadata"].clone(), after })
}
