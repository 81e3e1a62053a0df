//! The encoder: a window's log-mel becomes what the decoder attends across to.

use mstar_blocks::layers::{LayerError, LayerLoader, LayerNorm, Mlp, SelfAttention};
use mstar_contract::Precision;
use mstar_kernels::ops::{self, Activation, Conv1d, Epilogue, Taps};
use mstar_kernels::{Cx, KernelError, Tensor};
use mstar_weights::WeightFile;

use super::{Tap, heads, mlp, norm, self_attention};
use crate::Config;

/// The encoder with its weights.
pub struct EncoderNetwork {
    first: Conv1d,
    second: Conv1d,
    positions: Tensor,
    layers: Vec<Layer>,
    norm: LayerNorm,
}

struct Layer {
    attention_norm: LayerNorm,
    attention: SelfAttention,
    mlp_norm: LayerNorm,
    mlp: Mlp,
}

const KERNEL: usize = 3;

// --- impl EncoderNetwork ---

impl EncoderNetwork {
    /// Loads the encoder.
    pub fn load(config: &Config, file: &WeightFile, precision: Precision) -> Result<Self, LayerError> {
        let load = LayerLoader::new(file, precision);
        let width = config.width;
        let conv = |name: &str, channels: usize, stride: usize| -> Result<Conv1d, LayerError> {
            let weight = load.tensor(&format!("model.encoder.{name}.weight"), &[width, channels, KERNEL])?;
            let bias = load.tensor(&format!("model.encoder.{name}.bias"), &[width])?;
            let taps = Taps { stride, ..Taps::same(KERNEL, 1) };
            Ok(ops::pack_conv1d(&weight, Some(&bias), taps, precision)?)
        };
        Ok(Self {
            first: conv("conv1", config.mels, 1)?,
            second: conv("conv2", width, 2)?,
            positions: load.tensor("model.encoder.embed_positions.weight", &[config.positions, width])?,
            layers: (0..config.encoder_layers).map(|i| Layer::load(config, load, i)).collect::<Result<_, _>>()?,
            norm: norm(load, "model.encoder.layer_norm", width)?,
        })
    }

    /// Encodes one window, `[frames, mels]`, as `[positions, width]`.
    pub fn forward(&self, cx: &Cx, mel: &Tensor, tap: &mut Tap<'_>) -> Result<Tensor, KernelError> {
        self.forward_in_pieces(cx, mel, tap, &|| {})
    }

    /// [`EncoderNetwork::forward`] that calls `between` after every piece of some ten to thirty milliseconds.
    pub fn forward_in_pieces(
        &self,
        cx: &Cx,
        mel: &Tensor,
        tap: &mut Tap<'_>,
        between: &dyn Fn(),
    ) -> Result<Tensor, KernelError> {
        let gelu = Epilogue { activation: Activation::GeluErf, residual: None };
        let x = ops::conv1d(cx, mel, &self.first, gelu)?;
        let placed = Epilogue { activation: Activation::GeluErf, residual: Some(&self.positions) };
        let mut x = ops::conv1d(cx, &x, &self.second, placed)?;
        tap(0, &x)?;
        between();
        let length = x.dims()[0];
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.attention.whole(cx, (layer.attention_norm.of(&x), &x), length)?;
            between();
            x = layer.mlp.forward(cx, layer.mlp_norm.of(&x), &x)?;
            between();
            if i + 1 < self.layers.len() {
                tap(i + 1, &x)?;
            }
        }
        let out = self.norm.forward(cx, &x)?;
        tap(self.layers.len(), &out)?;
        Ok(out)
    }
}

// --- impl Layer ---

impl Layer {
    fn load(config: &Config, load: LayerLoader<'_>, index: usize) -> Result<Self, LayerError> {
        let (name, width) = (format!("model.encoder.layers.{index}"), config.width);
        Ok(Self {
            attention_norm: norm(load, &format!("{name}.self_attn_layer_norm"), width)?,
            attention: self_attention(load, &format!("{name}.self_attn"), heads(config.encoder_heads, width))?,
            mlp_norm: norm(load, &format!("{name}.final_layer_norm"), width)?,
            mlp: mlp(load, &name, width, config.encoder_inner)?,
        })
    }
}
