//! The network: encoder and decoder, after `modeling_whisper.py` of Hugging Face's transformers.

mod decoder;
mod encoder;

use mstar_blocks::layers::{Heads, LayerError, LayerLoader, LayerNorm, Mlp, SelfAttention};
use mstar_kernels::ops::Activation;
use mstar_kernels::{KernelError, Tensor};

pub use decoder::DecoderNetwork;
pub use encoder::EncoderNetwork;

/// Sees hidden states: index 0 is the input of the first layer, then each layer's output, the last one normed.
pub type Tap<'a> = dyn FnMut(usize, &Tensor) -> Result<(), KernelError> + 'a;

const EPS: f32 = 1e-5;

fn norm(load: LayerLoader<'_>, name: &str, width: usize) -> Result<LayerNorm, LayerError> {
    let part = |part: &str| load.tensor(&format!("{name}.{part}"), &[width]);
    Ok(LayerNorm { weight: part("weight")?, bias: part("bias")?, eps: EPS })
}

fn mlp(load: LayerLoader<'_>, layer: &str, width: usize, inner: usize) -> Result<Mlp, LayerError> {
    let linear = |name: &str, shape| {
        load.linear_biased(&format!("{layer}.{name}.weight"), &format!("{layer}.{name}.bias"), shape)
    };
    let (up, down) = (linear("fc1", [inner, width])?, linear("fc2", [width, inner])?);
    Ok(Mlp { up, activation: Activation::GeluErf, down })
}

fn heads(count: usize, width: usize) -> Heads {
    Heads { queries: count, keys: count, width: width / count }
}

/// Loads the attention `name` of a layer to itself; keys have no bias.
fn self_attention(load: LayerLoader<'_>, name: &str, heads: Heads) -> Result<SelfAttention, LayerError> {
    let width = heads.queries * heads.width;
    let part = |part: &str| format!("{name}.{part}");
    let (q, k, v) = (part("q_proj.weight"), part("k_proj.weight"), part("v_proj.weight"));
    let (q_bias, v_bias) = (part("q_proj.bias"), part("v_proj.bias"));
    let parts = [(q.as_str(), Some(q_bias.as_str())), (&k, None), (&v, Some(&v_bias))];
    Ok(SelfAttention {
        heads,
        qkv: load.fused(&parts, &[width; 3], width)?,
        out: load.linear_biased(&part("out_proj.weight"), &part("out_proj.bias"), [width, width])?,
    })
}
