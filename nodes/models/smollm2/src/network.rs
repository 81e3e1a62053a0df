//! The network: a Llama, layer by layer, on paged KV.
//!
//! Follows `modeling_llama.py` of Hugging Face's transformers. The file's query and key rows are in llama.cpp's order,
//! where a rotated pair's elements are neighbours; scores are sums over a head's width, so the order is kept and pairs
//! are turned as they lie.

use mstar_blocks::layers::{BatchRows, GatedMlp, Heads, LayerError, LayerLoader, RmsNorm, SelfAttention, Turn};
use mstar_contract::{DecodeBatch, Precision};
use mstar_kernels::ops::{self, Gain, PackedLinear, RopeAngles, RopePairs};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};
use mstar_weights::WeightFile;

use crate::Config;

/// The network with its weights.
pub struct Network {
    config: Config,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: PackedLinear,
    inverse_frequencies: Vec<f32>,
}

struct Layer {
    attention_norm: RmsNorm,
    attention: SelfAttention,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
}

/// Sees hidden states: index 0 is the embedding, then each layer's output, the last one after the final norm and only
/// for the rows whose logits are wanted.
pub type Tap<'a> = dyn FnMut(usize, &Tensor) -> Result<(), KernelError> + 'a;

// --- impl Network ---

impl Network {
    /// Loads the network from a GGUF file, its blocks as they lie in `q8` and `q4`, else dequantised, to where the context
    /// computes.
    pub fn load(file: &WeightFile, precision: Precision, cx: &Cx) -> Result<Self, String> {
        let config = Config::read(file)?;
        Self::with_config(config, LayerLoader::new(file, precision).on(cx), file, cx).map_err(|e| e.to_string())
    }

    fn with_config(config: Config, load: LayerLoader<'_>, file: &WeightFile, cx: &Cx) -> Result<Self, LayerError> {
        let shape = [config.vocabulary, config.width];
        let embedding = load.table("token_embd.weight", shape)?;
        let tied = file.get("output.weight").is_none();
        let head = load.linear(if tied { "token_embd.weight" } else { "output.weight" }, shape)?;
        let layers = (0..config.layers).map(|i| Layer::load(&config, load, i)).collect::<Result<_, _>>()?;
        let norm = rms_norm(&config, load, "output_norm.weight")?;
        let inverse_frequencies = config.inverse_frequencies();
        Ok(Self { config, embedding: embedding.on(cx)?, layers, norm, head, inverse_frequencies })
    }

    /// Returns the sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Appends the batch's tokens and returns the logits of the wanted rows.
    pub fn forward(
        &self,
        cx: &Cx,
        batch: &DecodeBatch<'_>,
        pages: &mut KvPages,
        tap: &mut Tap<'_>,
    ) -> Result<Tensor, KernelError> {
        let rows = BatchRows::of(batch);
        let angles = RopeAngles::new(&rows.positions, &self.inverse_frequencies);
        let turn = Turn { angles: &angles, pairs: RopePairs::Adjacent };
        let mut x = ops::embedding(cx, &self.embedding, batch.tokens)?;
        tap(0, &x)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let normed = layer.attention_norm.of(&x);
            x = layer.attention.paged(cx, (normed, &x), &rows, Some(turn), (i, pages))?;
            x = layer.mlp.forward(cx, layer.mlp_norm.of(&x), &x)?;
            if i + 1 < self.layers.len() {
                tap(i + 1, &x)?;
            }
        }
        let last = self.norm.forward(cx, &ops::take_rows(cx, &x, &rows.wanted)?)?;
        tap(self.layers.len(), &last)?;
        ops::linear(cx, &last, &self.head)
    }
}

// --- impl Layer ---

impl Layer {
    fn load(config: &Config, load: LayerLoader<'_>, index: usize) -> Result<Self, LayerError> {
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let heads = Heads { queries: config.heads, keys: config.kv_heads, width: config.head_dim };
        let (queries, keys) = (heads.queries * heads.width, heads.keys * heads.width);
        let qkv = [name("attn_q"), name("attn_k"), name("attn_v")];
        let qkv: Vec<(&str, Option<&str>)> = qkv.iter().map(|part| (part.as_str(), None)).collect();
        let (width, inner) = (config.width, config.inner);
        Ok(Self {
            attention_norm: rms_norm(config, load, &name("attn_norm"))?,
            attention: SelfAttention {
                heads,
                qkv: load.fused(&qkv, &[queries, keys, keys], width)?,
                out: load.linear(&name("attn_output"), [width, queries])?,
            },
            mlp_norm: rms_norm(config, load, &name("ffn_norm"))?,
            mlp: GatedMlp {
                gate_up: load.fused(&[(&name("ffn_gate"), None), (&name("ffn_up"), None)], &[inner; 2], width)?,
                down: load.linear(&name("ffn_down"), [width, inner])?,
            },
        })
    }
}

fn rms_norm(config: &Config, load: LayerLoader<'_>, name: &str) -> Result<RmsNorm, LayerError> {
    Ok(RmsNorm { weight: load.tensor(name, &[config.width])?, eps: config.eps, gain: Gain::Weight })
}
