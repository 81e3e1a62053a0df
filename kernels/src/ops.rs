//! The operations. Each file holds one: its interface, its kernels, and tests against a plain reference, of its bits in
//! any batch, and of its refusals.

mod activation;
mod attention;
mod conv1d;
mod conv2d;
mod conv_transpose1d;
mod elementwise;
mod embedding;
mod group_norm;
mod kv;
mod linear;
mod mel;
mod noise;
mod norm;
mod pick;
mod rope;
mod rows;
mod softmax;
mod stft;
mod voice;

pub use activation::{gelu_erf, gelu_tanh, relu, sigmoid, silu, silu_mul, silu_mul_halves, sin, snake};
pub use attention::{AttnRow, AttnSpan, Reach, attention, attention_joined, paged_attention};
pub use conv_transpose1d::{ConvTranspose1d, conv_transpose1d, pack_conv_transpose1d};
pub use conv1d::{Conv1d, DepthwiseConv1d, Taps, conv1d, depthwise_conv1d, pack_conv1d, pack_depthwise_conv1d};
pub use conv2d::{Conv2d, Grid, conv2d, pack_conv2d};
pub use elementwise::{add, add_channels, mul, mul_channels, scale};
pub use embedding::embedding;
pub use group_norm::{GroupNorm, group_norm};
pub use kv::{KvPages, KvRow, KvSize, PAGE_TOKENS};
pub use linear::{
    Activation, BlockFormat, Epilogue, Input, PackedLinear, Precision, linear, linear_of, linear_with, pack_blocks,
    pack_linear,
};
pub use mel::{LogMel, MEL_HOP, MEL_N_FFT};
pub use noise::{NoiseKey, normal};
pub use norm::{Gain, layer_norm, rms_norm};
pub use pick::{TopK, argmax, top_k};
pub use rope::{RopeAngles, RopePairs, rope};
pub use rows::{columns, concat_columns, concat_rows, take_rows, transpose};
pub use softmax::{log_softmax, softmax};
pub use stft::{Edges, Stft, hann};
pub use voice::voice_spectrum;
