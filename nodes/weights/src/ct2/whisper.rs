//! A Whisper under CTranslate2's names, renamed to Hugging Face's.
//!
//! CTranslate2 fuses query, key and value of self-attention into `linear_0`, and key and value of
//! cross-attention into `linear_1`; Hugging Face keeps them apart, and its `k_proj` has no bias.

use serde_json::{Value, json};

use crate::error::{Flaw, malformed};
use crate::gguf::Tensors;
use crate::scan::elements;
use crate::tensor::RawTensor;

/// The tensors of a Whisper under Hugging Face's names, types kept.
pub(crate) fn to_hugging_face(source: &super::Model) -> Result<Tensors, Flaw> {
    let mut renamer = Renamer { source: spec_tensors(source)?, out: Tensors::new() };
    renamer.run()?;
    Ok(renamer.out)
}

/// The settings of a Whisper as Hugging Face's `config.json` has them, read off its tensors.
pub(crate) fn config(source: &super::Model) -> Result<Value, Flaw> {
    let tensors = spec_tensors(source)?;
    let dim = |name: &str, axis: usize| -> Result<usize, Flaw> {
        match find(tensors, name)?.shape.get(axis) {
            Some(&dim) => Ok(dim),
            None => malformed(format!("variable {name:?} has no dimension {axis}")),
        }
    };
    let heads = |side: &str| -> Result<i64, Flaw> {
        let name = format!("{side}/num_heads");
        match find(tensors, &name)?.to_i64().as_deref() {
            Some([heads]) if *heads > 0 => Ok(*heads),
            _ => malformed(format!("{name} is not a count")),
        }
    };
    let vocab = dim("decoder/embeddings/weight", 0)?;
    // English-only vocabularies are one shorter than multilingual ones (51865), from 50257 on.
    let multilingual = vocab >= 51865;
    let end = if multilingual { 50257 } else { 50256 };
    Ok(json!({
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "is_encoder_decoder": true,
        "d_model": dim("encoder/conv1/weight", 0)?,
        "num_mel_bins": dim("encoder/conv1/weight", 1)?,
        "vocab_size": vocab,
        "encoder_layers": layers(tensors, "encoder"),
        "decoder_layers": layers(tensors, "decoder"),
        "encoder_attention_heads": heads("encoder")?,
        "decoder_attention_heads": heads("decoder")?,
        "encoder_ffn_dim": dim("encoder/layer_0/ffn/linear_0/weight", 0)?,
        "decoder_ffn_dim": dim("decoder/layer_0/ffn/linear_0/weight", 0)?,
        "max_source_positions": dim("encoder/position_encodings/encodings", 0)?,
        "max_target_positions": dim("decoder/position_encodings/encodings", 0)?,
        "decoder_start_token_id": end + 1,
        "eos_token_id": end,
        "pad_token_id": end,
        "bos_token_id": end,
        "scale_embedding": false,
        "torch_dtype": "float16",
    }))
}

fn spec_tensors(source: &super::Model) -> Result<&Tensors, Flaw> {
    if source.spec != "WhisperSpec" {
        return Err(Flaw::Unsupported(format!("a CTranslate2 model of kind {:?}", source.spec)));
    }
    Ok(&source.tensors)
}

fn find<'a>(tensors: &'a Tensors, name: &str) -> Result<&'a RawTensor, Flaw> {
    tensors.get(name).ok_or_else(|| Flaw::Malformed(format!("variable {name:?} is absent")))
}

fn layers(tensors: &Tensors, side: &str) -> usize {
    (0..).take_while(|i| tensors.contains_key(&layer_norm_of(side, *i))).count()
}

fn layer_norm_of(side: &str, layer: usize) -> String {
    format!("{side}/layer_{layer}/self_attention/layer_norm/gamma")
}

struct Renamer<'a> {
    source: &'a Tensors,
    out: Tensors,
}

// --- impl Renamer ---

impl Renamer<'_> {
    fn run(&mut self) -> Result<(), Flaw> {
        for conv in ["conv1", "conv2"] {
            self.linear(&format!("model.encoder.{conv}"), &format!("encoder/{conv}"))?;
        }
        self.copy("model.decoder.embed_tokens.weight", "decoder/embeddings/weight")?;
        for side in ["encoder", "decoder"] {
            self.copy(
                &format!("model.{side}.embed_positions.weight"),
                &format!("{side}/position_encodings/encodings"),
            )?;
            self.norm(&format!("model.{side}.layer_norm"), &format!("{side}/layer_norm"))?;
            let count = layers(self.source, side);
            if count == 0 {
                return malformed(format!("the {side} has no layers"));
            }
            for i in 0..count {
                self.layer(side, &format!("model.{side}.layers.{i}"), &format!("{side}/layer_{i}"))?;
            }
        }
        Ok(())
    }

    fn layer(&mut self, side: &str, to: &str, from: &str) -> Result<(), Flaw> {
        let (attn, fused) = (format!("{to}.self_attn"), format!("{from}/self_attention"));
        self.norm(&format!("{to}.self_attn_layer_norm"), &format!("{fused}/layer_norm"))?;
        self.split(&attn, &["q_proj", "k_proj", "v_proj"], &format!("{fused}/linear_0"))?;
        self.linear(&format!("{attn}.out_proj"), &format!("{fused}/linear_1"))?;
        if side == "decoder" {
            let (attn, fused) = (format!("{to}.encoder_attn"), format!("{from}/attention"));
            self.norm(&format!("{to}.encoder_attn_layer_norm"), &format!("{fused}/layer_norm"))?;
            self.linear(&format!("{attn}.q_proj"), &format!("{fused}/linear_0"))?;
            self.split(&attn, &["k_proj", "v_proj"], &format!("{fused}/linear_1"))?;
            self.linear(&format!("{attn}.out_proj"), &format!("{fused}/linear_2"))?;
        }
        self.norm(&format!("{to}.final_layer_norm"), &format!("{from}/ffn/layer_norm"))?;
        self.linear(&format!("{to}.fc1"), &format!("{from}/ffn/linear_0"))?;
        self.linear(&format!("{to}.fc2"), &format!("{from}/ffn/linear_1"))
    }

    fn copy(&mut self, to: &str, from: &str) -> Result<(), Flaw> {
        let tensor = find(self.source, from)?.clone();
        self.put(RawTensor { name: to.to_string(), ..tensor })
    }

    fn put(&mut self, tensor: RawTensor) -> Result<(), Flaw> {
        if tensor.to_i64().is_some() {
            return Err(Flaw::Unsupported(format!("the integer weights of {:?}", tensor.name)));
        }
        self.out.insert(tensor.name.clone(), tensor);
        Ok(())
    }

    fn linear(&mut self, to: &str, from: &str) -> Result<(), Flaw> {
        self.copy(&format!("{to}.weight"), &format!("{from}/weight"))?;
        self.copy(&format!("{to}.bias"), &format!("{from}/bias"))
    }

    fn norm(&mut self, to: &str, from: &str) -> Result<(), Flaw> {
        self.copy(&format!("{to}.weight"), &format!("{from}/gamma"))?;
        self.copy(&format!("{to}.bias"), &format!("{from}/beta"))
    }

    fn split(&mut self, to: &str, parts: &[&str], from: &str) -> Result<(), Flaw> {
        let source = self.source;
        let weight = find(source, &format!("{from}/weight"))?;
        let bias = find(source, &format!("{from}/bias"))?;
        for (i, part) in parts.iter().enumerate() {
            self.put(rows(weight, format!("{to}.{part}.weight"), i, parts.len())?)?;
            let bias = rows(bias, format!("{to}.{part}.bias"), i, parts.len())?;
            if *part != "k_proj" {
                self.put(bias)?;
            } else if bias.to_f32().iter().any(|&b| b != 0.0) {
                return malformed(format!("{to}.k_proj has a bias, Whisper's has none"));
            }
        }
        Ok(())
    }
}

/// The `part`-th of `parts` equal groups of rows.
fn rows(whole: &RawTensor, name: String, part: usize, parts: usize) -> Result<RawTensor, Flaw> {
    let mut shape = whole.shape.clone();
    match shape.first_mut() {
        Some(rows) if *rows % parts == 0 => *rows /= parts,
        _ => return malformed(format!("{:?} does not split in {parts}", whole.name)),
    }
    let size = whole.bytes.len() / parts;
    elements(&shape)?;
    match whole.bytes.slice(part * size..(part + 1) * size) {
        Some(bytes) => RawTensor::checked(name, shape, whole.dtype, bytes),
        None => malformed(format!("{:?} is shorter than its shape", whole.name)),
    }
}
