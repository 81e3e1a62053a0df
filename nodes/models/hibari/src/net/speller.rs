//! The small transformer that reads words that no lexicon has, character by character.
//!
//! Every character yields four slots; equal neighbours are one sound, blanks are none (CTC).

use std::collections::BTreeMap;
use std::path::Path;

use mstar_kernels::{Cx, PackedLinear, Precision, Tensor, ops};
use mstar_weights::WeightFile;
use serde_json::Value;

use super::layers::{Loader, Norm, Size, Transformer};
use crate::HibariError;
use crate::text::Guess;

const SIZE: Size = Size { width: 128, inner: 384 };
const HEADS: usize = 4;
const LAYERS: usize = 4;

/// Reads unknown words.
#[derive(Debug)]
pub struct Speller {
    cx: Cx,
    characters: BTreeMap<char, u32>,
    /// The sound of each class; class 0 is the blank.
    sounds: Vec<char>,
    embedding: Tensor,
    positions: Tensor,
    layers: Vec<Transformer>,
    norm: Norm,
    head: PackedLinear,
    longest: usize,
}

impl Speller {
    /// Loads `oov.safetensors` with the alphabets in `oov.json`.
    pub fn load(cx: &Cx, file: &WeightFile, alphabets: &Path) -> Result<Self, HibariError> {
        let text = std::fs::read_to_string(alphabets)
            .map_err(|source| HibariError::Settings { path: alphabets.to_path_buf(), source })?;
        let malformed = |reason: &str| HibariError::Malformed { path: alphabets.into(), reason: reason.into() };
        let json: Value = serde_json::from_str(&text).map_err(|error| malformed(&error.to_string()))?;
        let letters = |key: &str| -> Option<Vec<char>> {
            json[key].as_array()?.iter().map(|letter| letter.as_str()?.chars().next()).collect()
        };
        let characters = letters("in").ok_or_else(|| malformed("\"in\" is no list of characters"))?;
        let sounds = letters("out").ok_or_else(|| malformed("\"out\" is no list of characters"))?;
        let number =
            |key: &str| json[key].as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=64).contains(n));
        let slots = number("slots").ok_or_else(|| malformed("\"slots\" is no small number"))?;
        let longest = number("maxlen").ok_or_else(|| malformed("\"maxlen\" is no small number"))?;
        let loader = Loader { file, precision: Precision::F32 };
        Ok(Self {
            cx: cx.clone(),
            embedding: loader.tensor("m.emb.weight", &[characters.len() + 1, SIZE.width])?,
            characters: characters.into_iter().zip(1..).collect(),
            positions: loader.tensor("m.pos", &[longest, SIZE.width])?,
            layers: (0..LAYERS)
                .map(|i| loader.transformer(&format!("m.layers.{i}"), SIZE, HEADS))
                .collect::<Result<_, _>>()?,
            norm: loader.norm("m.norm", SIZE.width)?,
            head: loader.linear("m.head", (slots * (sounds.len() + 1), SIZE.width))?,
            sounds,
            longest,
        })
    }

    fn spell(&self, ids: &[u32]) -> Result<String, HibariError> {
        let cx = &self.cx;
        let letters = ops::embedding(cx, &self.embedding, ids)?;
        let mut x = ops::add(cx, &letters, &self.positions.rows(0..ids.len())?)?;
        for layer in &self.layers {
            x = layer.run(cx, &x)?;
        }
        let scores = ops::linear(cx, &self.norm.run(cx, &x)?, &self.head)?;
        let (mut sounds, mut previous) = (String::new(), 0);
        for slot in scores.f32s()?.chunks_exact(self.sounds.len() + 1) {
            let best =
                slot.iter().enumerate().fold(0, |best, (class, score)| if *score > slot[best] { class } else { best });
            if best != previous && best != 0 {
                sounds.push(self.sounds[best - 1]);
            }
            previous = best;
        }
        Ok(sounds)
    }
}

impl Guess for Speller {
    /// A word longer than the network reads is read in parts.
    fn guess(&self, word: &str) -> Option<String> {
        let ids: Vec<u32> = word.chars().filter_map(|c| self.characters.get(&c).copied()).collect();
        let parts: Option<Vec<String>> = ids.chunks(self.longest).map(|part| self.spell(part).ok()).collect();
        parts.map(|parts| parts.concat()).filter(|sounds| !sounds.is_empty())
    }
}
