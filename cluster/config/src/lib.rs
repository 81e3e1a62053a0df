//! The deployment file, read with spans into a [`Deployment`] that cannot be wrong.
//!
//! [`Deployment::parse`] walks the file once and reports every problem at once, each with file, line, column, key path, what is allowed
//! and, for a misspelt word, what was probably meant. It is pure: no file system, no network, no clock. Which models, components and
//! walks there are it learns from a [`Catalogue`]; it refuses to know any model itself. Every key is documented with its default at the
//! field it becomes.
//!
//! [`Environment::read`] is the only place of the project that reads environment variables.
//!
//! ```
//! use mstar_config::{Catalogue, Component, Deployment, Model, Walk};
//!
//! let catalogue = Catalogue {
//!     models: vec![Model {
//!         id: "echo".into(),
//!         components: vec![Component { id: "echo.say".into(), gpu: false, kv: false, page: None }],
//!         walks: vec![Walk { name: "main".into(), components: vec!["echo.say".into()] }],
//!         ..Model::default()
//!     }],
//! };
//! let deployment = Deployment::parse("a.toml", "[model.echo]\n", &catalogue)?;
//! assert_eq!(deployment.default_model, "echo");
//! assert_eq!(deployment.placements[0].component, "echo.say");
//!
//! let report = Deployment::parse("a.toml", "[model.echo]\nprecison = 'f32'\n", &catalogue).unwrap_err();
//! assert!(report.to_string().starts_with("a.toml:2:1: model.echo.precison: unknown key"));
//! # Ok::<(), mstar_config::Report>(())
//! ```

mod catalogue;
mod deployment;
mod environment;
mod expose;
mod fields;
mod locate;
mod problem;
mod read;
mod suggest;
mod units;

pub use catalogue::{Bond, Catalogue, Component, Model, PageBytes, Walk};
pub use deployment::{
    ApiKey, Deployment, Device, Http, KvBudget, Limits, Log, LogFormat, Metrics, ModelSettings, OnStuck, Placement,
    Precision, Protocol, Rank, Supervision, Tracing, WalkId, Weights,
};
pub use environment::Environment;
pub use expose::{AccessError, ExposureError};
pub use locate::locate;
pub use problem::{Problem, Report};
