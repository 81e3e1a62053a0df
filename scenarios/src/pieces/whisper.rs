//! Whisper: a window's spectrogram is encoded, its transcript decoded.

use std::path::Path;

use mstar_contract::{DecodeBatch, DecodeRow};
use mstar_kernels::ops::KvSize;
use mstar_kernels::{Cx, DType, KvPages, Precision, Tensor};
use mstar_weights::WeightFile;
use mstar_whisper::{Config, DecoderNetwork, EncoderNetwork};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Pieces, likeliest, numbers, pages_of, wrong};
use crate::error::StoryError;
use crate::lots::Lots;

/// Encoder and decoder, and a window that was encoded.
pub struct WhisperPieces {
    encoder: EncoderNetwork,
    decoder: DecoderNetwork,
    config: Config,
    cx: Cx,
    kv: KvPages,
    pages: Vec<u32>,
    mel: Tensor,
    context: Tensor,
}

// --- impl WhisperPieces ---

impl WhisperPieces {
    /// Loads the networks from a model's folder and encodes a window.
    pub fn load(folder: &Path, precision: Precision, cx: Cx) -> Result<Self, StoryError> {
        let file = WeightFile::open(folder).map_err(wrong)?;
        let config = Config::read(folder, &file).map_err(wrong)?;
        let encoder = EncoderNetwork::load(&config, &file, precision).map_err(wrong)?;
        let decoder = DecoderNetwork::load(&config, &file, precision).map_err(wrong)?;
        let (pages, _) = pages_of(1, config.context);
        let size = KvSize {
            layers: config.decoder_layers,
            pages: pages.len(),
            heads: config.decoder_heads,
            head_dim: config.width / config.decoder_heads,
        };
        let dtype = if precision == Precision::F32 { DType::F32 } else { DType::BF16 };
        let kv = KvPages::new(size, dtype).map_err(wrong)?;
        // Its values do not matter for the time: noise, as loud as speech.
        let (frames, lots) = (2 * config.positions, Lots::new(1, "spectrogram"));
        let noise = (0..(frames * config.mels) as u64).map(|place| (lots.share(place) * 2.0 - 1.0) as f32).collect();
        let mel = Tensor::from_f32(noise, [frames, config.mels]).map_err(wrong)?;
        let context = encoder.forward(&cx, &mel, &mut |_, _| Ok(())).map_err(wrong)?;
        Ok(Self { encoder, decoder, config, cx, kv, pages, mel, context })
    }

    fn encode(&mut self) -> Result<f64, StoryError> {
        let began = Instant::now();
        self.context = self.encoder.forward(&self.cx, &self.mel, &mut |_, _| Ok(())).map_err(wrong)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Decodes so many tokens, the cross-attention's keys and values included.
    fn decode(&mut self, tokens: usize) -> Result<f64, StoryError> {
        let began = Instant::now();
        let cross = self.decoder.cross(&self.cx, &self.context).map_err(wrong)?;
        let mut token = 0;
        for position in 0..tokens.min(self.config.context) {
            let row = DecodeRow { tokens: 0..1, position, pages: &self.pages, cross: Some(&cross), logits: true };
            let batch = DecodeBatch { tokens: &[token], rows: &[row] };
            let logits = self.decoder.forward(&self.cx, &batch, &mut self.kv, &[0]).map_err(wrong)?;
            token = likeliest(&self.cx, &logits)?[0];
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

impl Pieces for WhisperPieces {
    /// `encode`: a window of 30 s. `decode TOKENS`: so many tokens of a transcript.
    fn time(&mut self, words: &[&str]) -> Result<Value, StoryError> {
        match words {
            ["encode"] => Ok(json!({ "seconds": self.encode()? })),
            ["decode", _] => {
                let [tokens] = numbers(words)?;
                let seconds = self.decode(tokens)?;
                Ok(json!({ "seconds": seconds, "tokens_per_s": tokens as f64 / seconds }))
            }
            _ => Err(StoryError::Answer(format!("{words:?}: neither encode nor decode TOKENS"))),
        }
    }
}
