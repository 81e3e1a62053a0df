//! Boots a deployment: weights, ranks, engines, node actors under their supervisor, the way in, the HTTP server.
//!
//! [`NodeTable`] is the pure part: from a deployment to node actors on ranks. [`Cluster::boot`] carries it out, each
//! component loaded once however many models name it, and [`Cluster::drain`] ends it. [`Telemetry`] sets up logs and
//! spans, [`metrics`] the counters.
//!
//! The crate refuses to know what models compute, how requests travel through graphs, and what HTTP bodies mean.
//!
//! ```
//! use mstar_config::Deployment;
//! use mstar_runtime::NodeTable;
//! use mstar_zoo::Zoo;
//!
//! let zoo = Zoo::with_fake()?;
//! let deployment = Deployment::parse("a.toml", "[model.fake]\nwalks = ['echo']\n", &zoo.catalogue())?;
//! let table = NodeTable::of(&deployment, &zoo)?;
//! assert_eq!(table.nodes[0].name, "fake.text");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod boot;
mod cluster;
mod engine;
mod memory;
pub mod metrics;
mod operations;
mod placement;
mod rank;
mod restricted;
mod server;
mod signals;
mod telemetry;
mod view;
mod watch;
mod weights;

pub use boot::{Boot, BootError};
pub use cluster::{Cluster, Drained};
pub use placement::{NodeTable, NodeWeights, PlacedBinding, PlacedModel, PlacedNode, PlacementError};
pub use rank::RankError;
pub use server::{Reserved, Server, ServerError};
pub use signals::Signals;
pub use telemetry::{OtlpSettings, Telemetry, TelemetryError, TelemetrySettings};
pub use watch::{BootEvent, Watcher};
pub use weights::{ReadyWeights, WeightsError};
