//! Why a story could not be told to its end.

use mstar_contract::Failure;
use mstar_graph::GraphProblems;
use mstar_media::MediaError;
use mstar_runtime::{BootError, ServerError};
use mstar_zoo::ZooError;

/// Why a story could not be told to its end. An invariant that does not hold is no error: it is in the report.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// The deployment does not fit this build.
    #[error("{0}")]
    Deployment(String),
    /// The models do not fit together.
    #[error("the models of this build do not fit together")]
    Zoo(#[from] ZooError),
    /// The benchmark's graph is not well formed.
    #[error("the benchmark's graph is not well formed")]
    Graph(#[from] GraphProblems),
    /// The deployment could not be booted.
    #[error("the deployment could not be booted")]
    Boot(#[from] Box<BootError>),
    /// The server cannot listen.
    #[error("the server could not be started")]
    Server(#[from] ServerError),
    /// A request that the story needs failed.
    #[error("{what} failed")]
    Request {
        /// What was asked.
        what: &'static str,
        /// Why it failed.
        source: Failure,
    },
    /// A recording could not be made.
    #[error("a recording could not be made")]
    Media(#[from] MediaError),
    /// A connection or a file broke.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What broke.
        source: std::io::Error,
    },
    /// An answer is none that the story understands.
    #[error("{0}")]
    Answer(String),
}

impl StoryError {
    /// Returns what names a broken connection or file by what was tried.
    pub(crate) fn io(what: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
