//! Judges the network in float32 against tensors and transcripts recorded from another implementation.

use std::path::{Path, PathBuf};

use mstar_blocks::verify::{Judge, Report, Skipped, Tolerance};
use mstar_contract::{CrossKv, DecodeBatch, DecodeRow, Precision};
use mstar_kernels::ops::{self, KvSize, LogMel, PAGE_TOKENS};
use mstar_kernels::{Cx, DType, KvPages, Tensor};
use mstar_media::{Limits, decode_audio, resample};
use mstar_weights::WeightFile;
use serde_json::Value;

use crate::rules::RuleOptions;
use crate::{Config, DecoderNetwork, EncoderNetwork, Specials, mel};

type Failure = Box<dyn std::error::Error>;

/// Spectrogram and encoder: values are of the order of one.
const NEAR: Tolerance = Tolerance::Absolute(1e-4);
const LOGITS: Tolerance = Tolerance::OfLargest(1e-4);
/// Rules of the recorded plain and timed generations.
const RULES: RuleOptions = RuleOptions { suppress: true, translate: false };

/// A checkpoint, whole.
struct Checkpoint {
    config: Config,
    mel: LogMel,
    encoder: EncoderNetwork,
    decoder: DecoderNetwork,
}

/// A transcript on its way.
struct Written {
    tokens: Vec<u32>,
    /// Logits before any rule, a row per token.
    logits: Vec<f32>,
}

/// Compares the checkpoint `whisper` in a folder with `whisper_golden.safetensors` beside it; the folder's other half,
/// `gemma3_golden.safetensors`, is skipped.
pub fn check_tiny(folder: &Path, cx: &Cx) -> Result<Report, String> {
    let mut report = compare(folder, cx).map_err(|error| error.to_string())?;
    let gemma = folder.join("gemma3_golden.safetensors");
    if gemma.is_file() {
        let gemma = WeightFile::open(&gemma).map_err(|error| error.to_string())?;
        let reason = "gemma3 is not served yet";
        let skipped = |name: &str| Skipped { tensor: format!("gemma3.{name}"), reason: reason.to_owned() };
        report.skipped.extend(gemma.tensors().map(|tensor| skipped(&tensor.name)));
    }
    Ok(report)
}

/// Compares transcripts of the checkpoint in `weights` with `whisper_tiny_en.json` in `golden`; the recordings are wavs
/// somewhere below `media`, and skipped without.
pub fn check_real(weights: &Path, golden: &Path, media: Option<&Path>, cx: &Cx) -> Result<Report, String> {
    let recorded = std::fs::read(golden.join("whisper_tiny_en.json")).map_err(|error| error.to_string())?;
    let recorded: Value = serde_json::from_slice(&recorded).map_err(|error| error.to_string())?;
    let prompt = ids(&recorded["prompt_ids"]);
    let end = recorded["eot"].as_u64().and_then(|id| u32::try_from(id).ok()).ok_or("eot is no token")?;
    let checkpoint = Checkpoint::load(weights).map_err(|error| error.to_string())?;
    let mut report = Report::default();
    for row in recorded["rows"].as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default();
        let tensor = format!("whisper.{name}.ids");
        let Some(path) = media.and_then(|folder| find(folder, &format!("{name}.wav"))) else {
            report.skipped.push(Skipped { tensor, reason: format!("there is no {name}.wav to listen to") });
            continue;
        };
        let heard = checkpoint.listen(&path, &prompt, end, cx).map_err(|error| format!("{name}: {error}"))?;
        report.equal(tensor, heard == ids(&row["ids"]));
    }
    Ok(report)
}

fn compare(folder: &Path, cx: &Cx) -> Result<Report, Failure> {
    let golden = WeightFile::open(&folder.join("whisper_golden.safetensors"))?;
    let checkpoint = Checkpoint::load(&folder.join("whisper"))?;
    let specials = Specials::read(&folder.join("whisper"), &checkpoint.config, None)?;
    let mut judge = Judge::new(&golden);
    let context = compare_encoder(&checkpoint, &mut judge, cx)?;
    let cross = checkpoint.decoder.cross(cx, &context)?;
    let prompt = judge.input_ids("prompt")?;
    judge.check("prompt_logits", &checkpoint.read(&prompt, &cross, cx)?, LOGITS)?;
    let count = |judge: &mut Judge<'_>, name: &str| judge.input_ids(name).map(|ids| ids.len());
    let plain = |tokens: &[u32], logits: &mut [f32]| specials.constrain(logits, &prompt, tokens, RULES);
    let most = count(&mut judge, "greedy_tokens")?.max(count(&mut judge, "hf_generate")?);
    let written = checkpoint.write(&prompt, &cross, (most, specials.end), &plain, cx)?;
    judge.check_ids("greedy_tokens", &written.tokens)?;
    judge.check("greedy_logits_raw", &written.logits, LOGITS)?;
    judge.check_ids("hf_generate", &written.tokens)?;
    let timed: Vec<u32> = prompt.iter().copied().filter(|&token| Some(token) != specials.no_timestamps).collect();
    let rules = |tokens: &[u32], logits: &mut [f32]| specials.constrain(logits, &timed, tokens, RULES);
    let most = count(&mut judge, "hf_generate_timestamps")?;
    let written = checkpoint.write(&timed, &cross, (most, specials.end), &rules, cx)?;
    judge.check_ids("hf_generate_timestamps", &written.tokens)?;
    Ok(judge.finish())
}

/// Compares filters, spectrogram and hidden states, and returns the encoder's output.
fn compare_encoder(checkpoint: &Checkpoint, judge: &mut Judge<'_>, cx: &Cx) -> Result<Tensor, Failure> {
    let filters = ops::transpose(cx, &mel::filters(checkpoint.config.mels)?)?;
    judge.check("mel_filters", filters.f32s()?, NEAR)?;
    let mel = checkpoint.spectrogram(judge.input("audio")?.0, cx)?;
    judge.check("log_mel", ops::transpose(cx, &mel)?.f32s()?, NEAR)?;
    let mut states = Vec::new();
    let context = checkpoint.encoder.forward(cx, &mel, &mut |_, x| {
        states.push(x.clone());
        Ok(())
    })?;
    for (i, state) in states.iter().enumerate() {
        let name = format!("enc_hidden_{i}");
        // Of all but the last, only the first rows were recorded.
        let (_, shape) = judge.input(&name)?;
        let rows = shape.get(1).copied().unwrap_or_default().min(state.dims()[0]);
        judge.check(&name, state.rows(0..rows)?.f32s()?, NEAR)?;
    }
    judge.check("encoder_out", context.f32s()?, NEAR)?;
    Ok(context)
}

// --- impl Checkpoint ---

impl Checkpoint {
    fn load(folder: &Path) -> Result<Self, Failure> {
        let file = WeightFile::open(folder)?;
        let config = Config::read(folder, &file)?;
        Ok(Self {
            mel: LogMel::new(&mel::filters(config.mels)?)?,
            encoder: EncoderNetwork::load(&config, &file, Precision::F32)?,
            decoder: DecoderNetwork::load(&config, &file, Precision::F32)?,
            config,
        })
    }

    fn spectrogram(&self, mut samples: Vec<f32>, cx: &Cx) -> Result<Tensor, Failure> {
        samples.resize(self.config.window_samples(), 0.0);
        Ok(self.mel.run(cx, &samples)?)
    }

    /// Returns the greedy tokens of a recording, without any rule.
    fn listen(&self, path: &Path, prompt: &[u32], end: u32, cx: &Cx) -> Result<Vec<u32>, Failure> {
        let audio = resample(&decode_audio(&std::fs::read(path)?, &Limits::default())?, 16_000)?;
        let mel = self.spectrogram(audio.samples, cx)?;
        let cross = self.decoder.cross(cx, &self.encoder.forward(cx, &mel, &mut |_, _| Ok(()))?)?;
        let mut tokens = self.write(prompt, &cross, (200, end), &|_, _| {}, cx)?.tokens;
        tokens.retain(|&token| token != end);
        Ok(tokens)
    }

    /// Returns the logits of all tokens of a prompt, read one by one.
    fn read(&self, prompt: &[u32], cross: &CrossKv, cx: &Cx) -> Result<Vec<f32>, Failure> {
        let mut sequence = self.sequence(prompt.len())?;
        let mut logits = Vec::new();
        for &token in prompt {
            logits.extend_from_slice(sequence.append(self, &[token], cross, cx)?.f32s()?);
        }
        Ok(logits)
    }

    /// Goes on greedily after a prompt until the end token or `most` tokens; `rules` bend the logits first.
    fn write(
        &self,
        prompt: &[u32],
        cross: &CrossKv,
        (most, end): (usize, u32),
        rules: &dyn Fn(&[u32], &mut [f32]),
        cx: &Cx,
    ) -> Result<Written, Failure> {
        let mut sequence = self.sequence(prompt.len() + most)?;
        let mut written = Written { tokens: Vec::new(), logits: Vec::new() };
        let mut next = prompt.to_vec();
        while written.tokens.len() < most && written.tokens.last() != Some(&end) {
            let mut logits = sequence.append(self, &next, cross, cx)?;
            written.logits.extend_from_slice(logits.f32s()?);
            rules(&written.tokens, logits.f32s_mut()?);
            next = ops::argmax(cx, &logits)?;
            written.tokens.extend(&next);
        }
        Ok(written)
    }

    fn sequence(&self, tokens: usize) -> Result<Sequence, Failure> {
        let pages = tokens.div_ceil(PAGE_TOKENS);
        let heads = self.config.decoder_heads;
        let head_dim = self.config.width / heads;
        let size = KvSize { layers: self.config.decoder_layers, pages, heads, head_dim };
        Ok(Sequence { kv: KvPages::new(size, DType::F32)?, table: (0..pages as u32).collect(), length: 0 })
    }
}

/// One sequence with pages of its own.
struct Sequence {
    kv: KvPages,
    table: Vec<u32>,
    length: usize,
}

// --- impl Sequence ---

impl Sequence {
    /// Appends tokens and returns the logits of the last.
    fn append(&mut self, of: &Checkpoint, tokens: &[u32], cross: &CrossKv, cx: &Cx) -> Result<Tensor, Failure> {
        let row = DecodeRow {
            tokens: 0..tokens.len(),
            position: self.length,
            pages: &self.table,
            cross: Some(cross),
            logits: true,
        };
        self.length += tokens.len();
        let batch = DecodeBatch { tokens, rows: &[row] };
        Ok(of.decoder.forward(cx, &batch, &mut self.kv, &[tokens.len() - 1])?)
    }
}

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().into_iter().flatten();
    ids.filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect()
}

/// Returns the file of this name in a folder or below it.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let here = folder.join(name);
    if here.is_file() {
        return Some(here);
    }
    let mut below: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    below.sort();
    below.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| find(path, name))
}
