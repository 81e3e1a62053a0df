//! The Walk Graph. A model is a graph of nodes and a set of named walks over it; a request is a
//! sequence of walks in one or more partitions, which streams join. This crate declares graphs,
//! validates and draws them, cuts streams into chunks, and steps one request through one walk.
//!
//! It refuses to know what a value is, who computes it and where, when anything happens, and how a
//! message travels: no tensors, no actors, no clock, no IO. Values pass through the cursor as an
//! opaque `V`; stream items don't pass through it at all.
//!
//! - [`GraphBuilder`] takes nodes, partitions, [`Stream`]s and walks made of [`Section`]s, and builds
//!   an immutable [`Graph`], or reports every problem of it at once; [`draw`] draws it.
//! - [`Cursor`] takes what came of each firing and says what to do next.
//! - [`ChunkPolicy`] and [`ChunkCutter`] say which items of a stream to hand over.
//!
//! A language model: one walk that reads the prompt and decodes until the node raises `eos`.
//! ```
//! use mstar_graph::{Command, Cursor, Done, GraphBuilder, Input, Modality, Port};
//! use mstar_graph::{Bound, dynamic_loop, step};
//!
//! let prefill = step("llm", "prefill").input("prompt").to("token", "llm.decode", "token");
//! let decode = step("llm", "decode")
//!     .back("token", "llm.decode", "token")
//!     .client("text", Modality::Text)
//!     .stop("eos", "generate");
//! let generate = dynamic_loop("generate", Bound::from_request("max_tokens", 2048), decode);
//! let graph = GraphBuilder::new()
//!     .node("llm", "smollm2.llm")
//!     .partition("main")
//!     .walk("main", "chat", prefill.then(generate))
//!     .build()?;
//!
//! let chat = graph.find_walk("chat").expect("declared above");
//! let prompt = vec![(Port::from("prompt"), 7)];
//! let (mut cursor, mut commands) =
//!     Cursor::start(&graph, chat, prompt, &|_| None, &|name| (name == "max_tokens").then_some(100))?;
//! let mut reply = Vec::new();
//! loop {
//!     let mut fired = None;
//!     for command in commands {
//!         match command {
//!             Command::Fire(fire) => fired = Some(fire),
//!             Command::Emit { value, .. } => reply.push(value),
//!             _ => {}
//!         }
//!     }
//!     let Some(fire) = fired else { break };
//!     // Whoever drives the cursor computes; this model counts to ten and stops.
//!     let Input::One(token) = fire.inputs[0].1 else { panic!("each input is one value") };
//!     let done = match graph.step(fire.step).op.as_str() {
//!         "prefill" => Done::new(fire.firing).output("token", token),
//!         _ if token == 10 => Done::new(fire.firing).output("text", token).signal("eos"),
//!         _ => Done::new(fire.firing).output("text", token).output("token", token + 1),
//!     };
//!     commands = cursor.done(done)?;
//! }
//! assert_eq!(reply, [7, 8, 9, 10]);
//! assert!(cursor.finished());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod chunk;
mod cursor;
pub mod draw;
mod graph;
mod layout;
mod names;
mod problems;
mod section;
mod stream;

pub use builder::GraphBuilder;
pub use chunk::{AtEnd, Chunk, ChunkCutter, ChunkPolicy, Progress};
pub use cursor::{Command, Commands, Cursor, CursorError, Done, Fire, FiringId, Input, Iteration, Position};
pub use graph::{Graph, GraphLoop, GraphStep, GraphWalk, OpPorts, PortDecl, StepInput};
pub use names::{
    ComponentId, KeptName, LoopIx, LoopName, Modality, ModelId, NodeName, OpName, PartitionName, Port, StepIx,
    StepName, StreamIx, StreamName, UnknownModality, WalkIx, WalkName,
};
pub use problems::{GraphProblem, GraphProblems, ProblemKind};
pub use section::{
    Bound, Carries, Ends, Fragment, LoopSection, Section, Source, Step, Target, When, Wire, dynamic_loop,
    loop_over_stream, parallel, repeat, sequential, step,
};
pub use stream::Stream;
