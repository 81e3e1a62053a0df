//! The sizes of the network, from the settings of its GGUF file.

use mstar_weights::{MetaValue, WeightFile};

/// The sizes of a Llama network.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Number of layers.
    pub layers: usize,
    /// Width of the hidden state.
    pub width: usize,
    /// Width inside the gated MLP.
    pub inner: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Longest sequence in tokens.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Added to the mean square in norms.
    pub eps: f32,
    /// Ends the output.
    pub eos: u32,
}

// --- impl Config ---

impl Config {
    /// Reads the settings of a GGUF file, or says which is missing or contradicts another.
    pub fn read(file: &WeightFile) -> Result<Self, String> {
        let architecture = file.meta("general.architecture").and_then(MetaValue::as_str);
        if architecture != Some("llama") {
            return Err(format!("general.architecture is {architecture:?}, not llama"));
        }
        let meta = |key: &str| file.meta(key).ok_or_else(|| format!("setting {key} is missing"));
        let size = |key: &str| match meta(key)?.as_usize() {
            Some(value) if (1..=1 << 24).contains(&value) => Ok(value),
            _ => Err(format!("setting {key} is not a sensible size")),
        };
        let number = |key: &str| meta(key)?.as_f32().ok_or_else(|| format!("setting {key} is not a number"));
        let tokens = meta("tokenizer.ggml.tokens")?.as_strs().ok_or("setting tokenizer.ggml.tokens is not a list")?;
        let (width, heads) = (size("llama.embedding_length")?, size("llama.attention.head_count")?);
        let config = Self {
            layers: size("llama.block_count")?,
            width,
            inner: size("llama.feed_forward_length")?,
            heads,
            kv_heads: size("llama.attention.head_count_kv").unwrap_or(heads),
            head_dim: size("llama.attention.key_length").unwrap_or(width / heads),
            vocabulary: tokens.len(),
            context: size("llama.context_length")?,
            rope_base: number("llama.rope.freq_base").unwrap_or(10_000.0),
            eps: number("llama.attention.layer_norm_rms_epsilon")?,
            eos: u32::try_from(size("tokenizer.ggml.eos_token_id")?).map_err(|e| e.to_string())?,
        };
        config.check()?;
        Ok(config)
    }

    /// Returns one inverse frequency per rotated pair.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let pairs = self.head_dim / 2;
        (0..pairs).map(|i| 1.0 / self.rope_base.powf(2.0 * i as f32 / self.head_dim as f32)).collect()
    }

    fn check(&self) -> Result<(), String> {
        let whole = self.heads.is_multiple_of(self.kv_heads) && self.head_dim.is_multiple_of(2) && self.head_dim > 0;
        if whole {
            Ok(())
        } else {
            Err(format!("{} heads over {} of width {} do not divide", self.heads, self.kv_heads, self.head_dim))
        }
    }
}
