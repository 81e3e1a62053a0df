//! The actors that carry requests through Walk Graphs.
//!
//! An [`IngressHandle`] takes a request in; a walker, one actor per request, asks the model's plan for walks, steps
//! through them with cursors and sends steps to node actors ([`NodeActor`], one per node replica), which batch rows for
//! their rank ([`DeviceHandle`]) and pass stream items on to each other under credit. Messages go by [`Routes`], which
//! knows the live incarnation of every node; a [`SupervisionBridge`] keeps it true and tells walkers of replacements,
//! who redo what was lost. All messages are in [`messages`].
//!
//! This crate refuses to know what is computed and how (engines do), where a deployment comes from, and HTTP. Nothing
//! computes on its actors' threads.
//!
//! ```
//! use mstar_actors::{IngressArgs, IngressLimits, Routes};
//! let routes = Routes::new(["llm#0", "llm#1"]);
//! assert_eq!(routes.find("llm#1").map(|node| node.0), Some(1));
//! let ingress = IngressArgs::new(IngressLimits::default(), routes).handle();
//! # drop(ingress);
//! ```

mod client;
mod device;
mod faults;
mod ids;
mod ingress;
pub mod messages;
pub mod metrics;
mod node;
mod order;
mod routes;
mod served;
mod snapshot;
mod supervision;
pub mod trace;
mod walker;

pub use client::{ClientSink, ClientStream};
pub use device::{DeviceError, DeviceHandle, DeviceSpec, MakeEngine, SimDevice, ThreadDevice};
pub use faults::{AFTER_EMIT, AFTER_EXECUTE, BEFORE_EXECUTE, Faults, NoFaults, ON_ITEMS};
pub use ingress::{INGRESS, IngressActor, IngressArgs, IngressHandle, IngressLimits, Submit};
pub use messages::{CancelReason, NodeIx, OpIx};
pub use node::{BatchLimits, NodeActor, NodeArgs};
pub use routes::{IngressRoute, Route, Routes};
pub use served::{Binding, BoundWalks, Served, ServedError};
pub use snapshot::{IngressSnapshot, NodeSnapshot, PartitionPosition, RunningRequest, WalkerPosition};
pub use supervision::SupervisionBridge;
