//! From frames of text, pitch and energy to the spectrum that the synthesis reads.

use mstar_kernels::ops::{self, Conv1d};
use mstar_kernels::{Cx, Epilogue, PackedLinear, Precision, Tensor};
use mstar_weights::WeightFile;

use super::DECODER_IN;
use super::layers::{ConvNext, Loader, Norm, Size};
use crate::HibariError;
use crate::dsp::HEAD;

const SIZE: Size = Size { width: 256, inner: 768 };
const BLOCKS: usize = 8;
const KERNEL: usize = 7;
/// How many frames on either side a frame's spectrum depends on: nine convolutions of seven taps.
pub const CONTEXT: usize = (BLOCKS + 1) * (KERNEL / 2);

/// The second half of the network, for any run of frames with their context.
#[derive(Debug)]
pub struct Decoder {
    input: Conv1d,
    blocks: Vec<ConvNext>,
    norm: Norm,
    head: PackedLinear,
}

impl Decoder {
    /// Loads this half of the weights.
    pub fn load(file: &WeightFile, precision: Precision) -> Result<Self, HibariError> {
        let loader = Loader { file, precision };
        let block = |i| loader.conv_next(&format!("m.dec.{i}"), SIZE, (KERNEL, 1));
        Ok(Self {
            input: loader.conv("m.dec_in", [SIZE.width, DECODER_IN, KERNEL])?,
            blocks: (0..BLOCKS).map(block).collect::<Result<_, _>>()?,
            norm: loader.norm("m.dec_norm", SIZE.width)?,
            head: loader.linear("m.head", (HEAD, SIZE.width))?,
        })
    }

    /// Returns the spectra `[rows.len(), 3005]` of some rows of `frames`, the others are their context.
    pub fn run(&self, cx: &Cx, frames: &Tensor, rows: std::ops::Range<usize>) -> Result<Tensor, HibariError> {
        let mut x = ops::conv1d(cx, frames, &self.input, Epilogue::default())?;
        for block in &self.blocks {
            x = block.run(cx, &x)?;
        }
        let x = self.norm.run(cx, &x.rows(rows)?)?;
        Ok(ops::linear(cx, &x, &self.head)?)
    }
}
