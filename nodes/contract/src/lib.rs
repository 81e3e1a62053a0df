//! What a model author implements and an engine promises.
//!
//! A model is *components* (weights and ops: [`Component`]) and *walks* over them ([`Model`], [`Plan`]). The author
//! writes [`Compute`] (a batch of rows in, a result per row out) or [`Decoder`] (one forward pass over paged KV);
//! engines wrap these into an [`Engine`], which ranks drive. Everything that passes between them is a [`Value`].
//!
//! This crate knows no actors, no HTTP, no device threads and no model. It refuses to know where a component runs.
//!
//! ```
//! use mstar_contract::{Value, Gauge, TensorRef};
//! use mstar_kernels::Tensor;
//! let gauge = Gauge::new("cpu0");
//! let lease = TensorRef::lease(Tensor::from_f32(vec![0.0; 4], [4]).unwrap(), &gauge);
//! assert_eq!((gauge.live(), gauge.bytes()), (1, 16));
//! let value = Value::audio(lease, 24_000);
//! assert_eq!(value.byte_len(), 16);
//! drop(value);
//! assert_eq!((gauge.live(), gauge.bytes()), (0, 0));
//! ```

mod client;
mod component;
mod compute;
mod decoder;
mod engine;
mod model;
mod request;
mod row;
mod trace;
mod value;

pub use client::{ClientEvent, Emission, Failure, FailureKind, FinishReason, Summary, Usage};
pub use component::{Component, KvUse, LoadCx, LoadError, Loaded, OpDecl, Recovery, WeightSource};
pub use compute::{Compute, ComputeCx};
pub use decoder::{CrossKv, DecodeBatch, DecodeRow, Decoder, Detokenizer, KvGeometry, Prompt, SequenceView};
pub use engine::{Engine, EngineUsage, ExecuteCx, RowProgress};
pub use model::{Kept, Model, ModelCard, NextWalk, Plan};
pub use mstar_kernels::Precision;
pub use request::{Invalid, Media, Message, Part, Request, RequestId, RequestKey, Role, Sampling, Task, Tenant};
pub use row::{In, ItemChunk, Journal, JournalStep, Row, RowError, RowOutput, StepParams, WorkId};
pub use trace::TraceContext;
pub use value::{Gauge, TensorRef, Value};
