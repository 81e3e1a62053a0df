//! A rank in virtual time, for tests and stories: an actor that sleeps as long as its engines pretend to compute. Nothing
//! comes between the pieces of a batch.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::device::{Bench, DeviceError, DeviceSpec, Install};
use crate::messages::DeviceCommand;

/// Addresses a simulated rank. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimDevice {
    name: Arc<str>,
    actor: ActorRef<SimMsg>,
}

struct SimActor;

enum SimMsg {
    Install(Install),
    Command(DeviceCommand),
}

impl ractor::Message for SimMsg {}

// --- impl SimDevice ---

impl SimDevice {
    /// Starts a simulated rank, without engines.
    pub async fn start(spec: DeviceSpec) -> Result<Self, DeviceError> {
        let name = Arc::clone(&spec.name);
        match Actor::spawn(None, SimActor, spec).await {
            Ok((actor, _)) => Ok(Self { name, actor }),
            Err(error) => Err(DeviceError::Start(name, error.to_string())),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn install(&self, install: Install) {
        let _ = self.actor.cast(SimMsg::Install(install));
    }

    pub(crate) fn send(&self, command: DeviceCommand) {
        let _ = self.actor.cast(SimMsg::Command(command));
    }

    pub(crate) fn stop(&self) {
        self.actor.stop(None);
    }
}

// --- impl SimActor ---

impl Actor for SimActor {
    type Msg = SimMsg;
    type State = Bench;
    type Arguments = DeviceSpec;

    async fn pre_start(&self, _: ActorRef<SimMsg>, spec: DeviceSpec) -> Result<Bench, ActorProcessingErr> {
        Ok(Bench::new(spec))
    }

    async fn handle(&self, _: ActorRef<SimMsg>, message: SimMsg, bench: &mut Bench) -> Result<(), ActorProcessingErr> {
        match message {
            SimMsg::Install(install) => bench.install(install),
            SimMsg::Command(command) => {
                if let Some((node, executed, simulated)) = bench.carry_out(command, &mut |_| Duration::ZERO) {
                    if let Some(simulated) = simulated {
                        tokio::time::sleep(simulated).await;
                    }
                    bench.report(node, executed);
                }
            }
        }
        Ok(())
    }
}
