//! A rank: the engines of one device, driven by one compute thread, or in virtual time by an actor. Node actors send it
//! commands; what became of a batch goes back as a message to the node's live actor.

mod bench;
mod simulated;
mod thread;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use mstar_contract::{Engine, EngineUsage, Gauge, LoadError};
use mstar_kernels::Cx;
use tokio::sync::oneshot;

use crate::messages::{DeviceCommand, NodeIx};
use crate::routes::Routes;

pub(crate) use bench::Bench;
pub use simulated::SimDevice;
pub use thread::ThreadDevice;

/// Addresses a rank. Cheap to clone.
#[derive(Clone, Debug)]
pub enum DeviceHandle {
    /// A compute thread.
    Thread(ThreadDevice),
    /// A simulation.
    Simulated(SimDevice),
}

/// What a rank is made of.
pub struct DeviceSpec {
    /// Its name.
    pub name: Arc<str>,
    /// Its kernels.
    pub cx: Cx,
    /// Counts the tensors on it.
    pub gauge: Arc<Gauge>,
    /// Where outcomes go.
    pub routes: Arc<Routes>,
}

/// Makes an engine on the rank's thread: reads, converts and packs the weights. Called again when an engine is found to
/// be broken beyond a reset.
pub type MakeEngine = Box<dyn Fn(&Cx, &Arc<Gauge>) -> Result<Box<dyn Engine>, LoadError> + Send>;

/// A rank could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its thread or actor could not be started.
    #[error("rank `{0}` could not be started: {1}")]
    Start(Arc<str>, String),
    /// An engine could not be made.
    #[error("the engine could not be made")]
    Load(#[from] LoadError),
    /// Making an engine panicked.
    #[error("making the engine panicked: {0}")]
    Panicked(String),
    /// It did not answer in time.
    #[error("rank `{0}` did not answer within {1:?}")]
    Late(Arc<str>, Duration),
    /// It is gone.
    #[error("rank `{0}` is gone")]
    Gone(Arc<str>),
}

/// An engine to install, and where to say what came of it.
pub(crate) struct Install {
    pub(crate) node: NodeIx,
    pub(crate) make: MakeEngine,
    pub(crate) reply: oneshot::Sender<Result<(), DeviceError>>,
}

// --- impl DeviceHandle ---

impl DeviceHandle {
    /// Returns the rank's name.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Thread(device) => device.name(),
            Self::Simulated(device) => device.name(),
        }
    }

    /// Makes an engine for a node on the rank, in place of one it had.
    pub async fn install(&self, node: NodeIx, make: MakeEngine, within: Duration) -> Result<(), DeviceError> {
        let (reply, answer) = oneshot::channel();
        let install = Install { node, make, reply };
        match self {
            Self::Thread(device) => device.install(install),
            Self::Simulated(device) => device.install(install),
        }
        self.answer(answer, within).await?
    }

    /// Returns what a node's engine holds.
    pub async fn usage(&self, node: NodeIx, within: Duration) -> Result<EngineUsage, DeviceError> {
        let (reply, answer) = oneshot::channel();
        self.send(DeviceCommand::Usage(node, reply));
        self.answer(answer, within).await
    }

    /// Stops the rank after what it computes now. Its engines are dropped.
    pub fn stop(&self) {
        match self {
            Self::Thread(device) => device.stop(),
            Self::Simulated(device) => device.stop(),
        }
    }

    /// Sends a command; a rank that is gone takes none, and its nodes are found stuck.
    pub(crate) fn send(&self, command: DeviceCommand) {
        match self {
            Self::Thread(device) => device.send(command),
            Self::Simulated(device) => device.send(command),
        }
    }

    async fn answer<T>(&self, answer: oneshot::Receiver<T>, within: Duration) -> Result<T, DeviceError> {
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(DeviceError::Gone(Arc::clone(self.name()))),
            Err(_) => Err(DeviceError::Late(Arc::clone(self.name()), within)),
        }
    }
}
