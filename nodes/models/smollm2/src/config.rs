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
            eos: match meta("tokenizer.ggml.eos_token_id")?.as_usize().filter(|&id| id < tokens.len()) {
                Some(id) => id as u32,
                None => return Err("setting tokenizer.ggml.eos_token_id is no token".to_owned()),
            },
        };
        config.check()?;
        config.refuse_others(file)?;
        Ok(config)
    }

    /// Returns one inverse frequency per rotated pair.
    pub fn inverse_frequencies(&self) -> Vec<f32> {
        let pairs = self.head_dim / 2;
        (0..pairs).map(|i| 1.0 / self.rope_base.powf(2.0 * i as f32 / self.head_dim as f32)).collect()
    }

    /// Refuses what other Llamas have and this network has not: it would load, and answer wrongly.
    fn refuse_others(&self, file: &WeightFile) -> Result<(), String> {
        let text = |key: &str| file.meta(key).and_then(MetaValue::as_str);
        let number = |key: &str| file.meta(key).and_then(MetaValue::as_usize);
        let scaling = text("llama.rope.scaling.type").filter(|&kind| kind != "none");
        let tensor = ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.0.ffn_gate_inp.weight"]
            .into_iter()
            .find(|name| file.get(name).is_some());
        let turned = number("llama.rope.dimension_count").filter(|&width| width != self.head_dim);
        match (scaling, tensor, turned) {
            (Some(kind), ..) => Err(format!("rotary frequencies scaled by {kind:?} are not supported")),
            (_, Some(name), _) => Err(format!("tensor {name} is not supported")),
            (.., Some(width)) => {
                Err(format!("heads of {} of which {width} are turned are not supported", self.head_dim))
            }
            _ => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use mstar_weights::Format;

    use super::*;

    /// A GGUF of settings alone, and of one tensor of one number if it is named.
    fn file(settings: &[(&str, MetaValue)], tensor: Option<&str>) -> WeightFile {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        };
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend([tensor.iter().count() as u64, settings.len() as u64].iter().flat_map(|n| n.to_le_bytes()));
        for (key, value) in settings {
            text(&mut out, key);
            match value {
                MetaValue::Int(number) => out.extend([4u32.to_le_bytes(), (*number as u32).to_le_bytes()].concat()),
                MetaValue::Float(number) => out.extend([6u32.to_le_bytes(), (*number as f32).to_le_bytes()].concat()),
                MetaValue::Str(word) => {
                    out.extend(8u32.to_le_bytes());
                    text(&mut out, word);
                }
                MetaValue::Strs(words) => {
                    out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
                    out.extend((words.len() as u64).to_le_bytes());
                    words.iter().for_each(|word| text(&mut out, word));
                }
                other => panic!("{other:?} is not written here"),
            }
        }
        if let Some(name) = tensor {
            text(&mut out, name);
            out.extend(1u32.to_le_bytes());
            out.extend(1u64.to_le_bytes());
            out.extend([0; 12]);
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend([0; 4]);
        }
        WeightFile::from_bytes(Format::Gguf, out).unwrap()
    }

    fn settings() -> Vec<(&'static str, MetaValue)> {
        let sizes = [
            ("llama.block_count", 2),
            ("llama.embedding_length", 16),
            ("llama.feed_forward_length", 32),
            ("llama.attention.head_count", 2),
            ("llama.context_length", 64),
            ("llama.rope.dimension_count", 8),
            ("tokenizer.ggml.eos_token_id", 0),
        ];
        let mut settings: Vec<_> = sizes.map(|(key, size)| (key, MetaValue::Int(size))).into();
        settings.push(("general.architecture", MetaValue::Str("llama".into())));
        settings.push(("llama.attention.layer_norm_rms_epsilon", MetaValue::Float(1e-5)));
        settings.push(("tokenizer.ggml.tokens", MetaValue::Strs(vec!["<|end|>".into(), "a".into()])));
        settings
    }

    #[test]
    fn sizes_are_read_and_the_first_token_may_end_the_output() {
        let config = Config::read(&file(&settings(), None)).unwrap();
        assert_eq!((config.layers, config.kv_heads, config.head_dim, config.eos), (2, 2, 8, 0));
    }

    #[test]
    fn a_llama_that_would_answer_wrongly_is_refused() {
        let check = |key: &'static str, value: MetaValue, expected: &str| {
            let mut settings = settings();
            settings.retain(|(known, _)| *known != key);
            settings.push((key, value));
            let said = Config::read(&file(&settings, None)).unwrap_err();
            assert!(said.contains(expected), "{said}");
        };
        check("llama.rope.scaling.type", MetaValue::Str("linear".into()), "scaled by \"linear\"");
        check("llama.rope.dimension_count", MetaValue::Int(4), "of which 4 are turned");
        check("llama.attention.head_count", MetaValue::Int(0), "not a sensible size");
        check("llama.attention.head_count_kv", MetaValue::Int(3), "do not divide");
        check("tokenizer.ggml.eos_token_id", MetaValue::Int(2), "is no token");
        check("general.architecture", MetaValue::Str("qwen2".into()), "not llama");
        let said = Config::read(&file(&settings(), Some("rope_freqs.weight"))).unwrap_err();
        assert!(said.contains("rope_freqs.weight"), "{said}");
    }
}
