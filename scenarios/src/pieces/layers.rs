//! Single layers with random weights, as other libraries have them too.

mod codec;
mod image;

use std::collections::BTreeMap;

use mstar_blocks::layers::{Heads, LayerNorm, Mlp, SelfAttention};
use mstar_kernels::ops::{self, Activation, AttnSpan, PackedLinear, Reach};
use mstar_kernels::{Cx, KernelError, Precision, Tensor};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::codec::CodecDecoder;
use self::image::ImageDecoder;
use super::{Pieces, wrong};
use crate::error::StoryError;
use crate::lots::Lots;

/// Layers, made when they are first asked for.
pub struct LayerPieces {
    cx: Cx,
    made: BTreeMap<String, Box<dyn Layer>>,
}

/// A layer with its weights and an input.
trait Layer {
    fn run(&self, cx: &Cx) -> Result<(), KernelError>;
}

/// A block of ViT-L.
struct VitBlock {
    first: LayerNorm,
    attention: SelfAttention,
    second: LayerNorm,
    mlp: Mlp,
    x: Tensor,
}

/// Attention of queries to as many keys.
struct Attention {
    q: Tensor,
    k: Tensor,
    v: Tensor,
}

const HEADS: Heads = Heads { queries: 16, keys: 16, width: 64 };
/// ViT-L: its width, the width inside its MLP, and the tokens of an image of 336 by 336.
const WIDTH: usize = 1024;
const INNER: usize = 4096;
const TOKENS: usize = 576;
/// Frames of four seconds of audio, and of the 28 tokens that are decoded at a time while a voice streams.
const FRAMES_OF_4_S: usize = 188;
const FRAMES_OF_A_WINDOW: usize = 16;
/// Queries and keys of the attention.
const LENGTH: usize = 512;

// --- impl LayerPieces ---

impl LayerPieces {
    /// Returns no layers yet.
    pub fn new(cx: Cx) -> Self {
        Self { cx, made: BTreeMap::new() }
    }

    fn make(name: &str, precision: Precision) -> Result<Box<dyn Layer>, StoryError> {
        match name {
            "vit" => Ok(Box::new(VitBlock::new(precision).map_err(wrong)?)),
            "attention" => Ok(Box::new(Attention::new().map_err(wrong)?)),
            "snac_4s" => Ok(Box::new(CodecDecoder::new(FRAMES_OF_4_S, precision).map_err(wrong)?)),
            "snac_window" => Ok(Box::new(CodecDecoder::new(FRAMES_OF_A_WINDOW, precision).map_err(wrong)?)),
            "vae" => Ok(Box::new(ImageDecoder::new(precision).map_err(wrong)?)),
            _ => Err(StoryError::Answer(format!("{name}: no such layer"))),
        }
    }
}

impl Pieces for LayerPieces {
    /// `LAYER PRECISION`: one pass of a layer, e.g. `vit bf16`.
    fn time(&mut self, words: &[&str]) -> Result<Value, StoryError> {
        let &[name, numbers] = words else {
            return Err(StoryError::Answer(format!("{words:?}: a layer and its precision are wanted")));
        };
        let precision = if numbers == "f32" { Precision::F32 } else { Precision::Bf16 };
        let key = words.join(" ");
        if !self.made.contains_key(&key) {
            self.made.insert(key.clone(), Self::make(name, precision)?);
        }
        let began = Instant::now();
        self.made[&key].run(&self.cx).map_err(wrong)?;
        Ok(json!({ "seconds": began.elapsed().as_secs_f64() }))
    }
}

// --- impl VitBlock ---

impl VitBlock {
    fn new(precision: Precision) -> Result<Self, KernelError> {
        let norm = || Ok(LayerNorm { weight: noise("gain", [WIDTH])?, bias: noise("shift", [WIDTH])?, eps: 1e-6 });
        let linear = |outputs: usize, inputs: usize| -> Result<PackedLinear, KernelError> {
            ops::pack_linear(&noise("weight", [outputs, inputs])?, Some(&noise("bias", [outputs])?), precision)
        };
        let attention = SelfAttention { heads: HEADS, qkv: linear(3 * WIDTH, WIDTH)?, out: linear(WIDTH, WIDTH)? };
        let mlp = Mlp { up: linear(INNER, WIDTH)?, activation: Activation::GeluErf, down: linear(WIDTH, INNER)? };
        Ok(Self { first: norm()?, attention, second: norm()?, mlp, x: noise("tokens", [TOKENS, WIDTH])? })
    }
}

impl Layer for VitBlock {
    fn run(&self, cx: &Cx) -> Result<(), KernelError> {
        let x = self.attention.whole(cx, (self.first.of(&self.x), &self.x), TOKENS)?;
        self.mlp.forward(cx, self.second.of(&x), &x).map(drop)
    }
}

// --- impl Attention ---

impl Attention {
    fn new() -> Result<Self, KernelError> {
        let shape = [LENGTH, HEADS.queries, HEADS.width];
        Ok(Self { q: noise("queries", shape)?, k: noise("keys", shape)?, v: noise("values", shape)? })
    }
}

impl Layer for Attention {
    fn run(&self, cx: &Cx) -> Result<(), KernelError> {
        let span = AttnSpan { rows: 0..LENGTH, keys: 0..LENGTH, reach: Reach::Full };
        ops::attention(cx, &self.q, (&self.k, &self.v), &[span], 1.0 / (HEADS.width as f32).sqrt()).map(drop)
    }
}

/// Returns numbers between -1 and 1, as small as weights of such a size are.
fn noise<const N: usize>(name: &str, shape: [usize; N]) -> Result<Tensor, KernelError> {
    let lots = Lots::new(1, name);
    let scale = 1.0 / (shape.last().copied().unwrap_or(1) as f64).sqrt();
    let count = shape.iter().product::<usize>() as u64;
    Tensor::from_f32((0..count).map(|place| ((lots.share(place) * 2.0 - 1.0) * scale) as f32).collect(), shape)
}
