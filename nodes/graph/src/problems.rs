//! What can be wrong with a graph. All problems are reported at once, each with the path to it.

use std::fmt;

/// Every problem of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct GraphProblems {
    problems: Vec<GraphProblem>,
}

/// One problem of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {text}")]
pub struct GraphProblem {
    /// What sort of problem it is.
    pub kind: ProblemKind,
    /// Where it is, from the outside in.
    pub path: String,
    /// What is wrong, in words.
    pub text: String,
}

/// Sorts of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    /// A name that nothing has.
    Unknown,
    /// A name given twice.
    Duplicate,
    /// A section or partition without anything in it.
    Empty,
    /// An input that nothing ever feeds.
    NeverFed,
    /// An input that would be fed twice.
    FedTwice,
    /// A step that can never fire, because what feeds it can't.
    Unreachable,
    /// An edge that closes a cycle or runs against the order of its section.
    Order,
    /// A loop-back without a loop around both its ends.
    LoopBack,
    /// A bound of zero iterations, or one over a stream that the loop doesn't consume.
    Bound,
    /// A stream that doesn't join two partitions with one producer and one consumer.
    Stream,
    /// A chunk policy that can't work, or too little credit for it.
    Chunk,
    /// Outputs gathered that don't leave their loop, or that no step gives.
    Gather,
    /// A stop signal for a loop that isn't around the step or takes none.
    Stop,
    /// A kept value that no step keeps.
    Kept,
    /// A use of an op that doesn't match what its component declares.
    Ports,
}

/// Collects problems.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<GraphProblem>);

// --- impl GraphProblems ---

impl GraphProblems {
    /// Returns the problems, in the order of the graph's declaration.
    pub fn iter(&self) -> impl Iterator<Item = &GraphProblem> {
        self.problems.iter()
    }
}

impl fmt::Display for GraphProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} {} in the graph", if count == 1 { "problem" } else { "problems" })?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

// --- impl Problems ---

impl Problems {
    pub(crate) fn add(&mut self, kind: ProblemKind, path: impl fmt::Display, text: impl Into<String>) {
        self.0.push(GraphProblem { kind, path: path.to_string(), text: text.into() });
    }

    pub(crate) fn into_result(self) -> Result<(), GraphProblems> {
        if self.0.is_empty() { Ok(()) } else { Err(GraphProblems { problems: self.0 }) }
    }
}
