//! What a client receives: emissions, then exactly one end.

use mstar_graph::{Modality, Port};

use crate::Value;

/// One event of a request's life as its client sees it. Exactly one of `Done` and `Failed` is the last.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// Something the request produced.
    Emitted(Emission),
    /// The request ended well.
    Done(Summary),
    /// The request ended without its result.
    Failed(Failure),
}

/// A value on its way to the client.
#[derive(Clone, Debug)]
pub struct Emission {
    /// How the client should read it.
    pub modality: Modality,
    /// The output port it came from, which tells e.g. a transcript from a reply.
    pub port: Port,
    /// The value.
    pub value: Value,
}

/// How a request that ended well went.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Tokens read and written.
    pub usage: Usage,
    /// Why generation ended, when a node that samples says so.
    pub finish: Option<FinishReason>,
}

/// Tokens that a request read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens sampled.
    pub completion_tokens: u32,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop string.
    Stop,
    /// The bound on tokens.
    Length,
}

/// Why a request ended without its result.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the client should do about it.
    pub kind: FailureKind,
    /// What went wrong, for a person.
    pub message: String,
    /// The request field at fault, as a path such as `messages[0].content`.
    pub field: Option<String>,
}

/// What a client should do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Correct the request.
    Invalid,
    /// Come again later: the queue is full or the server drains.
    Overloaded,
    /// Come again later: a node of the walk has no live replica.
    Unavailable,
    /// Nothing: the client went away or asked for the end.
    Cancelled,
    /// Ask for more time: the deadline passed.
    Deadline,
    /// Report it: this is a fault of the server.
    Internal,
}

impl Usage {
    /// Adds what one step used.
    pub fn add(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
    }
}

impl Failure {
    /// Returns a failure of this kind without a field.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: None }
    }
}
