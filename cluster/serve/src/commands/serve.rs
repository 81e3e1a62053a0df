//! `mstar serve`: serves a deployment until it is asked to end, then drains.

use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mstar_config::{Deployment, Environment, LogFormat, Protocol};
use mstar_runtime::{
    Boot, BootEvent, Cluster, Drained, OtlpSettings, Server, Signals, Telemetry, TelemetrySettings, Watcher,
};

use crate::cli::ServeArgs;
use crate::commands::Setting;
use crate::deployment::{self, Read};
use crate::pulling::Bars;

/// A server that runs in this process.
pub(crate) struct Running {
    /// What serves.
    pub(crate) cluster: Cluster,
    /// What listens.
    pub(crate) server: Server,
    telemetry: Telemetry,
    signals: Signals,
}

/// What to do when somebody listens there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Give up.
    Refuse,
    /// Take a free port.
    TakeAnother,
}

/// How long open connections may take to end after the last request.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn serve(args: &ServeArgs, setting: Setting) -> Result<ExitCode> {
    Running::start(args, setting, Busy::Refuse, |_| {}).await?.until_asked().await
}

// --- impl Running ---

impl Running {
    /// Boots the deployment and opens its address. `hear` is told how the boot goes.
    pub(crate) async fn start(
        args: &ServeArgs,
        setting: Setting,
        busy: Busy,
        hear: impl Fn(&BootEvent) + Send + Sync + 'static,
    ) -> Result<Self> {
        let Read { deployment, name, folder, .. } = deployment::read(&args.deployment, &setting.zoo)?;
        let Setting { environment, zoo, log } = setting;
        let telemetry = Telemetry::start(&telemetry(&deployment, &environment, log))?;
        let mut signals = Signals::take()?;
        let address = match &args.listen {
            Some(text) => resolve(text)?,
            None => deployment.listen,
        };
        let keys = deployment.all_keys(&folder, &environment)?;
        deployment.check_exposure(address, &keys)?;
        // Taken before the boot: who finds the address busy should not wait for gigabytes first. Nobody listens until the
        // boot is done, so that probes are refused, not kept waiting.
        let listener = match Server::reserve(address) {
            Err(error) if busy == Busy::TakeAnother && error.source.kind() == std::io::ErrorKind::AddrInUse => {
                tracing::info!("{address} is taken, so another port is used");
                Server::reserve(SocketAddr::new(address.ip(), 0))?
            }
            listener => listener?,
        };
        tracing::info!("boots {name}");
        let bars = Bars::new();
        let watcher = Watcher::new(move |event| {
            hear(&event);
            match event {
                BootEvent::Pulling { package, event } => bars.show(package, event),
                BootEvent::Weights { .. } => bars.clear(),
                _ => {}
            }
        });
        let boot = Boot { folder, environment, watcher, ..Boot::new(deployment, zoo) };
        let cluster = tokio::select! {
            cluster = Cluster::boot(boot) => cluster?,
            signal = signals.next() => anyhow::bail!("{signal} during the boot"),
        };
        let server = Server::start(listener, &cluster)?;
        let models: Vec<&str> = cluster.deployment().served().collect();
        tracing::info!("listens on http://{} and serves {}", server.address(), models.join(", "));
        Ok(Self { cluster, server, telemetry, signals })
    }

    /// Waits for work that is done while the server runs; Ctrl-C or SIGTERM breaks it off.
    pub(crate) async fn unless_asked<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            signal = self.signals.next() => anyhow::bail!("{signal}"),
        }
    }

    /// Serves until Ctrl-C or SIGTERM, then ends.
    pub(crate) async fn until_asked(mut self) -> Result<ExitCode> {
        let signal = self.signals.next().await;
        tracing::info!("{signal}: no new requests; a second one ends at once");
        self.end().await
    }

    /// Lets running requests end within the deployment's bound, during which new ones are told 503; then stops accepting,
    /// and flushes spans.
    pub(crate) async fn end(mut self) -> Result<ExitCode> {
        let within = self.cluster.deployment().limits.drain;
        let tell = |count: usize| tracing::info!("requests that still run: {count}; {} s at most", within.as_secs());
        tokio::select! {
            drained = self.cluster.drain(tell) => {
                if drained == Drained::Cancelled {
                    tracing::warn!("cancelled what had not ended after {} s", within.as_secs());
                }
            }
            signal = self.signals.next() => {
                tracing::warn!("{signal} again: ends at once");
                return Ok(ExitCode::FAILURE);
            }
        }
        self.server.close(CLOSE_WITHIN).await;
        self.cluster.shutdown().await;
        self.telemetry.shutdown();
        Ok(ExitCode::SUCCESS)
    }
}

fn resolve(text: &str) -> Result<SocketAddr> {
    let found = text.to_socket_addrs().with_context(|| format!("--listen {text}: not HOST:PORT"))?;
    found.into_iter().next().with_context(|| format!("--listen {text}: no such host"))
}

fn telemetry(deployment: &Deployment, environment: &Environment, log: Option<String>) -> TelemetrySettings {
    let otlp = deployment.otlp_endpoint(environment).map(|endpoint| OtlpSettings {
        endpoint,
        http: deployment.tracing.protocol == Protocol::Http,
        sample_ratio: deployment.tracing.sample_ratio,
        service_name: deployment.service_name(environment),
    });
    let colour = !environment.no_color && std::io::stderr().is_terminal();
    let log_json = deployment.log.format == LogFormat::Json;
    TelemetrySettings { log: log.unwrap_or_else(|| "info".to_owned()), log_json, colour, otlp }
}
