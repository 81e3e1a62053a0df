//! Transformer layers that models share, on the kernels' ops. A row's result never depends on the batch around it.

mod attention;
mod batch;
mod load;
mod mlp;
mod norm;

pub use attention::{CrossAttention, Heads, SelfAttention, Turn};
pub use batch::BatchRows;
pub use load::{LayerError, LayerLoader};
pub use mlp::{GatedMlp, Mlp};
pub use norm::{LayerNorm, RmsNorm};
