//! The sizes and special tokens of a checkpoint: from the shapes of its tensors and the settings beside them.

use std::path::Path;

use mstar_blocks::Tokenizer;
use mstar_weights::WeightFile;
use serde_json::Value;

/// Width of a head in all published checkpoints; a `config.json` may say otherwise.
const HEAD_WIDTH: usize = 64;
/// The least decoder positions that a transcript can be written in.
const LEAST_CONTEXT: usize = 16;
/// Vocabularies of this size and above know several languages.
const MULTILINGUAL: usize = 51_865;

/// The sizes of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Width of the hidden states.
    pub width: usize,
    /// Mel bands.
    pub mels: usize,
    /// Encoder layers.
    pub encoder_layers: usize,
    /// Decoder layers.
    pub decoder_layers: usize,
    /// Heads of the encoder.
    pub encoder_heads: usize,
    /// Heads of the decoder.
    pub decoder_heads: usize,
    /// Width inside the encoder's MLP.
    pub encoder_inner: usize,
    /// Width inside the decoder's MLP.
    pub decoder_inner: usize,
    /// Encoder positions: half the frames of a window.
    pub positions: usize,
    /// Decoder positions: longest sequence in tokens.
    pub context: usize,
    /// Number of tokens.
    pub vocabulary: usize,
}

/// The tokens that are no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specials {
    /// Ends a transcript.
    pub end: u32,
    /// Begins one.
    pub start: u32,
    /// Languages by code, empty for a checkpoint that knows only English.
    pub languages: Vec<(String, u32)>,
    /// Asks to write down what is said.
    pub transcribe: Option<u32>,
    /// Asks to write it in English.
    pub translate: Option<u32>,
    /// Opens the text before the window.
    pub previous: Option<u32>,
    /// Stands for silence.
    pub no_speech: Option<u32>,
    /// Asks for text without times.
    pub no_timestamps: Option<u32>,
    /// Tokens that may never be sampled.
    pub suppressed: Vec<u32>,
    /// Tokens that may not be sampled first.
    pub suppressed_first: Vec<u32>,
    /// The latest first timestamp, in steps of 20 ms.
    pub latest_first: u32,
}

// --- impl Config ---

impl Config {
    /// Reads the sizes of a checkpoint in its folder.
    pub fn read(folder: &Path, file: &WeightFile) -> Result<Self, String> {
        let shape = |name: &str, rank: usize| match file.tensor(name) {
            Ok(tensor) if tensor.shape.len() == rank => Ok(tensor.shape.clone()),
            Ok(tensor) => Err(format!("tensor {name} has shape {:?}", tensor.shape)),
            Err(error) => Err(error.to_string()),
        };
        let layers = |side: &str| {
            let has = |i: &usize| file.get(&format!("model.{side}.layers.{i}.fc1.weight")).is_some();
            (0..).take_while(has).count()
        };
        let conv = shape("model.encoder.conv1.weight", 3)?;
        let (width, mels) = (conv[0], conv[1]);
        let settings = settings(folder, "config.json")?;
        let heads = |key: &str| match settings[key].as_u64() {
            Some(heads) => usize::try_from(heads).map_err(|e| e.to_string()),
            None => Ok(width / HEAD_WIDTH),
        };
        let config = Self {
            width,
            mels,
            encoder_layers: layers("encoder"),
            decoder_layers: layers("decoder"),
            encoder_heads: heads("encoder_attention_heads")?,
            decoder_heads: heads("decoder_attention_heads")?,
            encoder_inner: shape("model.encoder.layers.0.fc1.weight", 2)?[0],
            decoder_inner: shape("model.decoder.layers.0.fc1.weight", 2)?[0],
            positions: shape("model.encoder.embed_positions.weight", 2)?[0],
            context: shape("model.decoder.embed_positions.weight", 2)?[0],
            vocabulary: shape("model.decoder.embed_tokens.weight", 2)?[0],
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        let divides = |heads: usize| heads > 0 && self.width.is_multiple_of(heads);
        let sizes = [self.width, self.mels, self.encoder_layers, self.decoder_layers, self.positions, self.vocabulary];
        if sizes.contains(&0) || self.context < LEAST_CONTEXT {
            return Err(format!("{self:?} makes no network"));
        }
        if !divides(self.encoder_heads) || !divides(self.decoder_heads) {
            return Err(format!("the width {} does not divide into the heads", self.width));
        }
        Ok(())
    }

    /// Returns the samples of a window: two frames per position, 160 samples per frame.
    pub fn window_samples(&self) -> usize {
        self.positions * 2 * mstar_kernels::ops::MEL_HOP
    }
}

// --- impl Specials ---

impl Specials {
    /// Reads the special tokens of a checkpoint: what its settings name, and what its tokeniser does.
    pub fn read(folder: &Path, config: &Config, tokenizer: Option<&Tokenizer>) -> Result<Self, String> {
        let (model, generation) = (settings(folder, "config.json")?, settings(folder, "generation_config.json")?);
        let ct2 = settings(folder, "ct2.json")?;
        let set = |key: &str| id(&generation[key]).or_else(|| id(&model[key]));
        let named = |name: &str| tokenizer.and_then(|t| t.id(name));
        let end = named("<|endoftext|>").or_else(|| set("eos_token_id")).ok_or("no end token is named")?;
        let start = named("<|startoftranscript|>").or_else(|| set("decoder_start_token_id"));
        let start = start.ok_or("no start token is named")?;
        if let Some(token) = [end, start].iter().find(|&&token| token as usize >= config.vocabulary) {
            return Err(format!("token {token} is beyond the vocabulary of {}", config.vocabulary));
        }
        let no_timestamps = named("<|notimestamps|>").or_else(|| set("no_timestamps_token_id"));
        let no_speech = named("<|nospeech|>").or_else(|| named("<|nocaptions|>"));
        let multilingual = generation["is_multilingual"].as_bool().unwrap_or(config.vocabulary >= MULTILINGUAL);
        let lists = [&generation["suppress_tokens"], &model["suppress_tokens"], &ct2["suppress_ids"]];
        let firsts =
            [&generation["begin_suppress_tokens"], &model["begin_suppress_tokens"], &ct2["suppress_ids_begin"]];
        Ok(Self {
            end,
            start,
            languages: if multilingual { languages(&generation, tokenizer, start) } else { Vec::new() },
            transcribe: named("<|transcribe|>").or_else(|| id(&generation["task_to_id"]["transcribe"])),
            translate: named("<|translate|>").or_else(|| id(&generation["task_to_id"]["translate"])),
            previous: named("<|startofprev|>").or_else(|| set("prev_sot_token_id")),
            no_speech: no_speech.or_else(|| no_timestamps?.checked_sub(1)),
            no_timestamps,
            suppressed: first_list(&lists),
            suppressed_first: first_list(&firsts),
            latest_first: set("max_initial_timestamp_index").unwrap_or(50),
        })
    }

    /// Returns whether the checkpoint knows several languages.
    pub fn multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// Returns the token of a language code.
    pub fn language(&self, code: &str) -> Option<u32> {
        self.languages.iter().find(|(name, _)| name == code).map(|&(_, id)| id)
    }

    /// Returns the code of a language token.
    pub fn language_of(&self, token: u32) -> Option<&str> {
        self.languages.iter().find(|&&(_, id)| id == token).map(|(name, _)| name.as_str())
    }

    /// Returns the first of the timestamps, which are the last tokens; beyond all tokens when there are none.
    pub fn first_timestamp(&self) -> u32 {
        self.no_timestamps.map_or(u32::MAX, |token| token.saturating_add(1))
    }
}

/// Returns the settings of a file, nothing when there is no such file.
fn settings(folder: &Path, name: &str) -> Result<Value, String> {
    match std::fs::read(folder.join(name)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("{name}: {error}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Returns a token id; the first when several are named.
fn id(value: &Value) -> Option<u32> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn first_list(lists: &[&Value]) -> Vec<u32> {
    lists.iter().find_map(|list| list.as_array()).into_iter().flatten().filter_map(id).collect()
}

fn languages(generation: &Value, tokenizer: Option<&Tokenizer>, start: u32) -> Vec<(String, u32)> {
    let code = |name: &str| {
        let code = name.strip_prefix("<|")?.strip_suffix("|>")?;
        let plain = (2..=3).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_lowercase());
        plain.then(|| code.to_owned())
    };
    if let Some(map) = generation["lang_to_id"].as_object() {
        return map.iter().filter_map(|(name, value)| Some((code(name)?, id(value)?))).collect();
    }
    let name = |id: u32| tokenizer.and_then(|t| t.name(id)).and_then(|name| code(&name));
    (start..=u32::MAX).skip(1).map_while(|id| Some((name(id)?, id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            width: 64,
            mels: 80,
            encoder_layers: 1,
            decoder_layers: 1,
            encoder_heads: 1,
            decoder_heads: 1,
            encoder_inner: 256,
            decoder_inner: 256,
            positions: 1500,
            context: 448,
            vocabulary: 51_864,
        }
    }

    #[test]
    fn a_checkpoint_without_any_settings_is_refused() {
        assert_eq!(config().window_samples(), 480_000);
        assert!(Specials::read(Path::new("/nowhere"), &config(), None).is_err());
    }

    #[test]
    fn sizes_that_make_no_network_are_refused() {
        assert_eq!(config().check(), Ok(()));
        for broken in [
            Config { width: 0, ..config() },
            Config { positions: 0, ..config() },
            Config { context: 4, ..config() },
            Config { decoder_heads: 3, ..config() },
            Config { encoder_heads: 0, ..config() },
        ] {
            assert!(broken.check().is_err(), "{broken:?}");
        }
    }

    #[test]
    fn settings_name_one_id_or_several() {
        assert_eq!(id(&serde_json::json!([7, 8])), Some(7));
        assert_eq!(id(&serde_json::json!(9)), Some(9));
        assert_eq!(id(&Value::Null), None);
        assert_eq!(first_list(&[&Value::Null, &serde_json::json!([1, 2])]), [1, 2]);
    }
}
