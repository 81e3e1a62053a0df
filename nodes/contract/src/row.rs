//! Rows: one request's share of a batch, what it brings and what it gives back.

use std::sync::Arc;

use mstar_graph::{LoopName, OpName, Port};
use smallvec::SmallVec;

use crate::{Failure, FailureKind, FinishReason, Request, RequestKey, Usage, Value};

/// Names a row within the node actor that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// One request's share of a batch.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which row of its node this is.
    pub work: WorkId,
    /// The request's attempt it belongs to.
    pub key: RequestKey,
    /// Which op computes it.
    pub op: OpName,
    /// What goes into the op.
    pub inputs: SmallVec<[(Port, In); 2]>,
    /// What does not change between a request's steps.
    pub params: Arc<StepParams>,
    /// Names the step's random numbers: equal whenever the same step runs again.
    pub draw: u64,
    /// What a stateful node must redo before this step, because its state was lost.
    pub rebuild: Option<Arc<Journal>>,
}

/// What arrives at a port.
#[derive(Clone, Debug)]
pub enum In {
    /// One value.
    One(Value),
    /// The values of all iterations of a loop, in order.
    All(Vec<Value>),
    /// A signal edge: presence is its meaning.
    Signal,
    /// A chunk of a stream.
    Chunk(ItemChunk),
}

/// A chunk of a stream as its policy cut it.
#[derive(Clone, Debug)]
pub struct ItemChunk {
    /// The items, context first.
    pub items: Vec<Value>,
    /// Where the first item stands in the whole stream.
    pub start: u64,
    /// How many leading items were handed over before.
    pub context: usize,
    /// Whether the stream ends with this chunk.
    pub last: bool,
}

/// What does not change between the steps of a request at a node.
#[derive(Clone, Debug)]
pub struct StepParams {
    /// The request.
    pub request: Arc<Request>,
    /// Names the sequence within a stateful node (guidance branches of one request have several).
    pub label: u8,
}

/// What a stateful node did for a request so far: enough to rebuild its state without sampling again.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// The steps since the sequence began.
    pub steps: Vec<JournalStep>,
}

/// One op's part of a journal; consecutive steps that each fed back the token before are folded into one.
#[derive(Clone, Debug)]
pub struct JournalStep {
    /// The op that opened it.
    pub op: OpName,
    /// The inputs of that op.
    pub inputs: SmallVec<[(Port, In); 2]>,
    /// The tokens sampled by it and by the steps that followed on its tokens.
    pub sampled: Vec<u32>,
}

/// What an op gives back for one row.
#[derive(Clone, Debug, Default)]
pub struct RowOutput {
    /// Values in the order they were produced. A port may occur several times when its edges lead to a stream or to
    /// the client.
    pub outputs: SmallVec<[(Port, Value); 3]>,
    /// Loops to end after this iteration; a loop not yet begun then runs no iteration.
    pub stops: SmallVec<[LoopName; 1]>,
    /// The token sampled, for the journal.
    pub sampled: Option<u32>,
    /// Tokens read and written.
    pub usage: Usage,
    /// Set by the step that ends a generation.
    pub finish: Option<FinishReason>,
}

/// Why a row failed. A row's error fails its request, never its batch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RowError {
    /// The request's content cannot be served; tells the field.
    #[error("{field}: {message}")]
    Invalid {
        /// The request field at fault.
        field: String,
        /// What is wrong.
        message: String,
    },
    /// The row can never fit into this deployment's limits.
    #[error("{0}")]
    TooLarge(String),
    /// A fault of the op.
    #[error("{0}")]
    Internal(String),
    /// The op panicked on this row.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl Row {
    /// Returns a request's first row at a node, with these inputs.
    pub fn new(request: Arc<Request>, inputs: impl IntoIterator<Item = (Port, In)>) -> Self {
        Self {
            work: WorkId(0),
            op: "test".into(),
            key: RequestKey { id: 0, attempt: 0 },
            inputs: inputs.into_iter().collect(),
            params: Arc::new(StepParams { request, label: 0 }),
            draw: 0,
            rebuild: None,
        }
    }

    /// Returns what arrived at a port.
    pub fn input(&self, port: &str) -> Option<&In> {
        self.inputs.iter().find(|(name, _)| name.as_str() == port).map(|(_, input)| input)
    }

    /// Returns the one value at a port.
    pub fn value(&self, port: &str) -> Result<&Value, RowError> {
        match self.input(port) {
            Some(In::One(value)) => Ok(value),
            _ => Err(RowError::Internal(format!("input {port} is missing"))),
        }
    }

    /// Returns the text at a port.
    pub fn text(&self, port: &str) -> Result<&str, RowError> {
        self.value(port)?.as_text().ok_or_else(|| RowError::Internal(format!("input {port} is not text")))
    }

    /// Returns the chunk at a port.
    pub fn chunk(&self, port: &str) -> Result<&ItemChunk, RowError> {
        match self.input(port) {
            Some(In::Chunk(chunk)) => Ok(chunk),
            _ => Err(RowError::Internal(format!("input {port} is not a chunk"))),
        }
    }

    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.params.request
    }
}

impl RowOutput {
    /// Adds a value at a port.
    pub fn push(&mut self, port: impl Into<Port>, value: Value) {
        self.outputs.push((port.into(), value));
    }
}

impl From<mstar_kernels::KernelError> for RowError {
    fn from(error: mstar_kernels::KernelError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<crate::Invalid> for RowError {
    fn from(invalid: crate::Invalid) -> Self {
        Self::Invalid { field: invalid.field, message: invalid.message }
    }
}

impl From<RowError> for Failure {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Invalid { field, message } => Self { kind: FailureKind::Invalid, message, field: Some(field) },
            RowError::TooLarge(message) => Self::new(FailureKind::Invalid, message),
            error => Self::new(FailureKind::Internal, error.to_string()),
        }
    }
}
