//! The decoder: tokens over paged KV, attending across to an encoded window.

use std::ops::Range;

use mstar_blocks::layers::{BatchRows, CrossAttention, LayerError, LayerLoader, LayerNorm, Mlp, SelfAttention};
use mstar_contract::{CrossKv, DecodeBatch, Precision};
use mstar_kernels::ops::{self, PackedLinear};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};
use mstar_weights::WeightFile;

use super::{heads, mlp, norm, self_attention};
use crate::Config;

/// The decoder with its weights.
pub struct DecoderNetwork {
    embedding: Tensor,
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
    head: PackedLinear,
}

struct Layer {
    attention_norm: LayerNorm,
    attention: SelfAttention,
    cross_norm: LayerNorm,
    cross: CrossAttention,
    mlp_norm: LayerNorm,
    mlp: Mlp,
}

// --- impl DecoderNetwork ---

impl DecoderNetwork {
    /// Loads the decoder.
    pub fn load(config: &Config, file: &WeightFile, precision: Precision) -> Result<Self, LayerError> {
        let load = LayerLoader::new(file, precision);
        let (name, shape) = ("model.decoder.embed_tokens.weight", [config.vocabulary, config.width]);
        let (embedding, head) = (load.table(name, shape)?, load.linear(name, shape)?);
        Ok(Self {
            embedding,
            positions: load.tensor("model.decoder.embed_positions.weight", &[config.context, config.width])?,
            layers: (0..config.decoder_layers).map(|i| Layer::load(config, load, i)).collect::<Result<_, _>>()?,
            norm: norm(load, "model.decoder.layer_norm", config.width)?,
            head,
        })
    }

    /// Returns the keys and values of an encoded window, once per window.
    pub fn cross(&self, cx: &Cx, context: &Tensor) -> Result<CrossKv, KernelError> {
        let layers = self.layers.iter().map(|layer| layer.cross.keys_values(cx, context));
        Ok(CrossKv { layers: layers.collect::<Result<_, _>>()?, rows: context.dims()[0] })
    }

    /// Appends the batch's tokens and returns the logits of the tokens that stand at `wanted` in the batch.
    pub fn forward(
        &self,
        cx: &Cx,
        batch: &DecodeBatch<'_>,
        pages: &mut KvPages,
        wanted: &[usize],
    ) -> Result<Tensor, KernelError> {
        let rows = BatchRows::of(batch);
        let nothing = CrossKv::default();
        let across: Vec<(Range<usize>, &CrossKv)> =
            batch.rows.iter().map(|row| (row.tokens.clone(), row.cross.unwrap_or(&nothing))).collect();
        let words = ops::embedding(cx, &self.embedding, batch.tokens)?;
        let mut x = ops::add(cx, &words, &ops::embedding(cx, &self.positions, &rows.positions)?)?;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.attention.paged(cx, (layer.attention_norm.of(&x), &x), &rows, None, (i, pages))?;
            x = layer.cross.forward(cx, (layer.cross_norm.of(&x), &x), &across, i)?;
            x = layer.mlp.forward(cx, layer.mlp_norm.of(&x), &x)?;
        }
        let last = self.norm.forward(cx, &ops::take_rows(cx, &x, wanted)?)?;
        ops::linear(cx, &last, &self.head)
    }
}

// --- impl Layer ---

impl Layer {
    fn load(config: &Config, load: LayerLoader<'_>, index: usize) -> Result<Self, LayerError> {
        let (name, width) = (format!("model.decoder.layers.{index}"), config.width);
        let heads = heads(config.decoder_heads, width);
        let cross = |part: &str| format!("{name}.encoder_attn.{part}");
        let (k, v, v_bias) = (cross("k_proj.weight"), cross("v_proj.weight"), cross("v_proj.bias"));
        let square = [width, width];
        Ok(Self {
            attention_norm: norm(load, &format!("{name}.self_attn_layer_norm"), width)?,
            attention: self_attention(load, &format!("{name}.self_attn"), heads)?,
            cross_norm: norm(load, &format!("{name}.encoder_attn_layer_norm"), width)?,
            cross: CrossAttention {
                heads,
                q: load.linear_biased(&cross("q_proj.weight"), &cross("q_proj.bias"), square)?,
                kv: load.fused(&[(k.as_str(), None), (&v, Some(v_bias.as_str()))], &[width; 2], width)?,
                out: load.linear_biased(&cross("out_proj.weight"), &cross("out_proj.bias"), square)?,
            },
            mlp_norm: norm(load, &format!("{name}.final_layer_norm"), width)?,
            mlp: mlp(load, &name, width, config.decoder_inner)?,
        })
    }
}
