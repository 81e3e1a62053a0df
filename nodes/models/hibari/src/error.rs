//! What can go wrong in the model.

use std::path::PathBuf;

use mstar_kernels::KernelError;
use mstar_weights::WeightsError;

/// Why hibari could not be loaded or could not speak.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HibariError {
    /// A weight is absent or has another shape.
    #[error("hibari's weights do not fit")]
    Weights(#[from] WeightsError),
    /// An operation refused its operands.
    #[error("an operation of hibari failed")]
    Kernel(#[from] KernelError),
    /// A settings file cannot be read.
    #[error("{} cannot be read", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A settings file says something else than it should.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A symbol id that the embedding has no row for.
    #[error("symbol {id} is beyond the {rows} rows of the embedding")]
    Symbol {
        /// The id.
        id: u32,
        /// The rows there are.
        rows: usize,
    },
    /// A block of sound came out of its turn.
    #[error("frame {frame} of sentence {sentence} came out of its turn")]
    Order {
        /// The sentence.
        sentence: u32,
        /// The first new frame of the block.
        frame: usize,
    },
    /// A tensor that should be a block is none.
    #[error("a block cannot be read: {0}")]
    Block(&'static str),
}
