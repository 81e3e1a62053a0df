//! From frames of text, pitch and energy to the spectrum that the synthesis reads, as the frames come.

use std::ops::Range;

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
/// How many rows on either side a convolution looks at.
const SIDE: usize = KERNEL / 2;
/// How many frames after it a frame's spectrum waits for: nine convolutions of seven taps.
pub const LOOK_AHEAD: usize = (BLOCKS + 1) * SIDE;

/// The second half of the network, for frames in their order.
#[derive(Debug)]
pub struct Decoder {
    input: Conv1d,
    blocks: Vec<ConvNext>,
    norm: Norm,
    head: PackedLinear,
}

/// What the layers hold of the frames so far, until those after them are known.
#[derive(Debug, Clone, Default)]
pub struct Held {
    layers: [Window; BLOCKS + 1],
}

/// The last rows that came to one convolution.
#[derive(Debug, Clone, Default)]
struct Window {
    rows: Option<Tensor>,
    /// How many of them were convolved before: they are only neighbours now.
    done: usize,
}

// --- impl Window ---

impl Window {
    /// Takes new rows. Returns all that the convolution needs, and those of them whose neighbours have all come; beyond
    /// the first row and the `last` there are none.
    fn slide(&mut self, cx: &Cx, new: &Tensor, last: bool) -> Result<(Tensor, Range<usize>), HibariError> {
        let rows = match &self.rows {
            Some(held) => ops::concat_rows(cx, &[held, new])?,
            None => new.clone(),
        };
        let count = rows.dims()[0];
        let ready = self.done..if last { count } else { count.saturating_sub(SIDE).max(self.done) };
        let kept = ready.end.saturating_sub(SIDE)..count;
        self.done = ready.end - kept.start;
        // A copy: a view would keep all rows.
        self.rows = Some(ops::take_rows(cx, &rows, &kept.collect::<Vec<_>>())?);
        Ok((rows, ready))
    }
}

// --- impl Decoder ---

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

    /// Takes the next frames `[count, 130]` of a sentence. Returns the spectra `[ready, 3005]` of the frames that have
    /// become ready: those [`LOOK_AHEAD`] before the newest, and with the `last` frames all. A spectrum has the same
    /// bits however the frames are cut.
    pub fn run(&self, cx: &Cx, held: &mut Held, frames: &Tensor, last: bool) -> Result<Tensor, HibariError> {
        let [first, others @ ..] = &mut held.layers;
        let (rows, ready) = first.slide(cx, frames, last)?;
        let mut x = ops::conv1d(cx, &rows, &self.input, Epilogue::default())?.rows(ready)?;
        for (block, window) in self.blocks.iter().zip(others) {
            let (rows, ready) = window.slide(cx, &x, last)?;
            x = block.run_some(cx, &rows, ready)?;
        }
        Ok(ops::linear_of(cx, self.norm.of(&x), &self.head, Epilogue::default())?)
    }
}
