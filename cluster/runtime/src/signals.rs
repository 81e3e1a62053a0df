//! The signals that ask the process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

// --- impl Signals ---

impl Signals {
    /// Takes over the signals from the system, whose answer would be to end the process.
    pub fn take() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
