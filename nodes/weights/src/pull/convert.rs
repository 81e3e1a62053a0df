//! Turning unpacked files into a model folder.

mod hibari;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::PullError;
use crate::ct2;
use crate::error::{Flaw, Format, WeightsError};
use crate::mapped::Backing;
use crate::package::Recipe;
use crate::safetensors::write_safetensors;
use crate::tensor::RawTensor;

/// Converts everything in `stage` into `ready`.
pub(super) fn convert(recipe: Recipe, stage: &Path, ready: &Path) -> Result<(), PullError> {
    match recipe {
        Recipe::Gguf => {}
        Recipe::Whisper => whisper(stage, ready)?,
        Recipe::Hibari => hibari::convert(stage, ready)?,
    }
    let rest = fs::read_dir(stage).map_err(PullError::io(stage))?;
    for entry in rest {
        let entry = entry.map_err(PullError::io(stage))?;
        fs::rename(entry.path(), ready.join(entry.file_name())).map_err(PullError::io(&entry.path()))?;
    }
    Ok(())
}

/// Reads a staged file with `convert`, writes the resulting tensors, and removes the source.
fn rewrite<T>(
    from: &Path,
    format: Format,
    to: &Path,
    convert: impl FnOnce(&Arc<Backing>) -> Result<(BTreeMap<String, RawTensor>, T), Flaw>,
) -> Result<T, PullError> {
    let file = Backing::map(from)?;
    let (tensors, more) = convert(&file).map_err(|flaw| flaw.at(from, format))?;
    write_safetensors(to, tensors.values())?;
    drop((tensors, file));
    fs::remove_file(from).map_err(PullError::io(from))?;
    Ok(more)
}

fn whisper(stage: &Path, ready: &Path) -> Result<(), PullError> {
    let bin = stage.join("model.bin");
    let config = rewrite(&bin, Format::Ct2, &ready.join("model.safetensors"), |file| {
        let model = ct2::read(file)?;
        Ok((ct2::whisper::to_hugging_face(&model)?, ct2::whisper::config(&model)?))
    })?;
    let hints = stage.join("ct2.json");
    let bytes = fs::read(&hints).map_err(PullError::io(&hints))?;
    let generation = generation_config(&bytes, &config).map_err(|e| WeightsError::Malformed {
        path: hints.clone(),
        format: Format::Ct2,
        reason: e.to_string(),
    })?;
    fs::remove_file(&hints).map_err(PullError::io(&hints))?;
    write_json(&ready.join("config.json"), &config)?;
    write_json(&ready.join("generation_config.json"), &generation)
}

/// CTranslate2's hints for decoding, under the names of Hugging Face's `generation_config.json`.
fn generation_config(hints: &[u8], config: &Value) -> Result<Value, serde_json::Error> {
    let hints: Value = serde_json::from_slice(hints)?;
    Ok(json!({
        "suppress_tokens": hints["suppress_ids"],
        "begin_suppress_tokens": hints["suppress_ids_begin"],
        "alignment_heads": hints["alignment_heads"],
        "lang_ids": hints["lang_ids"],
        "decoder_start_token_id": config["decoder_start_token_id"],
        "eos_token_id": config["eos_token_id"],
        "max_length": config["max_target_positions"],
    }))
}

fn write_json(path: &Path, value: &Value) -> Result<(), PullError> {
    fs::write(path, format!("{value:#}\n")).map_err(PullError::io(path))
}
