//! From symbol ids to what the decoder reads: the encoded text stretched to its durations, pitch and energy.

use mstar_kernels::ops::{self, Activation, Conv1d};
use mstar_kernels::{Cx, Epilogue, Precision, Tensor};
use mstar_weights::WeightFile;

use super::DECODER_IN;
use super::layers::{ConvNext, Loader, Norm, Size, Transformer};
use crate::HibariError;

const SYMBOLS: usize = 178;
const HEADS: usize = 2;
const TEXT: Size = Size { width: 128, inner: 256 };
const PROSODY: Size = Size { width: 192, inner: 384 };
const DILATIONS: [usize; 6] = [1, 2, 4, 8, 1, 2];
/// The longest a symbol may last, in frames at 40 Hz: ten seconds. No voice reaches it; a broken weight would.
const MAX_DURATION: f32 = 400.0;

/// An encoder of symbols: convolutions, then one transformer layer run several times over.
#[derive(Debug)]
struct TextEncoder {
    embedding: Tensor,
    convs: [ConvNext; 2],
    layer: Transformer,
    loops: usize,
    norm: Norm,
}

/// The first half of the network, for one sentence at a time.
#[derive(Debug)]
pub struct Acoustic {
    text: TextEncoder,
    prosody_text: TextEncoder,
    duration: [Conv1d; 2],
    prosody_in: Conv1d,
    prosody: Vec<ConvNext>,
    prosody_out: Conv1d,
}

/// A sentence, frame by frame at 80 Hz.
#[derive(Debug, Clone)]
pub struct Speech {
    /// How many 40 Hz frames each symbol lasts.
    pub durations: Vec<usize>,
    /// The pitch in Hz.
    pub f0: Vec<f32>,
    /// What the decoder reads, `[frames, 130]`.
    pub frames: Tensor,
}

// --- impl TextEncoder ---

impl TextEncoder {
    fn load(loader: Loader<'_>, name: &str, size: Size, loops: usize) -> Result<Self, HibariError> {
        let conv = |i: usize| loader.conv_next(&format!("{name}.convs.{i}"), size, (5, 1));
        Ok(Self {
            embedding: loader.tensor(&format!("{name}.emb.weight"), &[SYMBOLS, size.width])?,
            convs: [conv(0)?, conv(1)?],
            layer: loader.transformer(&format!("{name}.attn"), size, HEADS)?,
            loops,
            norm: loader.norm(&format!("{name}.norm"), size.width)?,
        })
    }

    fn run(&self, cx: &Cx, ids: &[u32]) -> Result<Tensor, HibariError> {
        let mut x = ops::embedding(cx, &self.embedding, ids)?;
        for conv in &self.convs {
            x = conv.run(cx, &x)?;
        }
        for _ in 0..self.loops {
            x = self.layer.run(cx, &x)?;
        }
        self.norm.run(cx, &x)
    }
}

// --- impl Acoustic ---

impl Acoustic {
    /// Loads this half of the weights.
    pub fn load(file: &WeightFile, precision: Precision) -> Result<Self, HibariError> {
        let loader = Loader { file, precision };
        let width = PROSODY.width;
        let block = |(i, dilation)| loader.conv_next(&format!("pn.pro.{i}"), PROSODY, (7, dilation));
        Ok(Self {
            text: TextEncoder::load(loader, "m.text", TEXT, 4)?,
            prosody_text: TextEncoder::load(loader, "pn.text", PROSODY, 6)?,
            duration: [loader.conv("pn.dur.0", [width, width, 3])?, loader.conv("pn.dur.2", [1, width, 1])?],
            prosody_in: loader.conv("pn.pro_in", [width, width, 1])?,
            prosody: DILATIONS.into_iter().enumerate().map(block).collect::<Result<_, _>>()?,
            prosody_out: loader.conv("pn.pro_out", [4, width, 1])?,
        })
    }

    /// Speaks a sentence of ids (between their two zeros), faster where `speed` is above 1.
    pub fn run(&self, cx: &Cx, ids: &[u32], speed: f32) -> Result<Speech, HibariError> {
        if let Some(&id) = ids.iter().find(|id| **id as usize >= SYMBOLS) {
            return Err(HibariError::Symbol { id, rows: SYMBOLS });
        }
        let encoded = self.prosody_text.run(cx, ids)?;
        let durations = self.durations(cx, &encoded, speed)?;
        let stretched = |step: usize| {
            let symbols = durations.iter().enumerate();
            symbols.flat_map(|(symbol, &length)| std::iter::repeat_n(symbol, step * length)).collect::<Vec<usize>>()
        };
        let (f0, energy) = self.prosody(cx, &ops::take_rows(cx, &encoded, &stretched(1))?)?;
        let text = ops::take_rows(cx, &self.text.run(cx, ids)?, &stretched(2))?;
        let width = DECODER_IN - TEXT.width;
        let voice = f0.iter().zip(&energy).flat_map(|(f0, energy)| [f0.max(0.0).ln_1p() / 5.0, energy / 5.0]);
        let voice = Tensor::from_f32(voice.collect(), [f0.len(), width])?;
        let frames = ops::concat_columns(cx, &[&text, &voice])?;
        Ok(Speech { durations, f0, frames })
    }

    fn durations(&self, cx: &Cx, encoded: &Tensor, speed: f32) -> Result<Vec<usize>, HibariError> {
        let gelu = Epilogue { activation: Activation::GeluErf, residual: None };
        let inner = ops::conv1d(cx, encoded, &self.duration[0], gelu)?;
        let logs = ops::conv1d(cx, &inner, &self.duration[1], Epilogue::default())?;
        let frames = |log: &f32| ((log.exp() - 1.0) / speed).round_ties_even().clamp(1.0, MAX_DURATION) as usize;
        Ok(logs.f32s()?.iter().map(frames).collect())
    }

    /// Returns pitch in Hz and energy at 80 Hz: each row at 40 Hz holds two values of either.
    fn prosody(&self, cx: &Cx, stretched: &Tensor) -> Result<(Vec<f32>, Vec<f32>), HibariError> {
        let mut x = ops::conv1d(cx, stretched, &self.prosody_in, Epilogue::default())?;
        for block in &self.prosody {
            x = block.run(cx, &x)?;
        }
        let out = ops::conv1d(cx, &x, &self.prosody_out, Epilogue::default())?;
        let rows = out.f32s()?.as_chunks::<4>().0;
        let f0 = rows.iter().flat_map(|row| [row[0] * 100.0, row[1] * 100.0]).collect();
        let energy = rows.iter().flat_map(|row| [row[2] * 5.0, row[3] * 5.0]).collect();
        Ok((f0, energy))
    }
}
