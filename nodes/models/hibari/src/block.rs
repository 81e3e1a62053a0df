//! The items between the two halves of the model: the frames of a sentence, run by run.

use std::ops::Range;

use mstar_kernels::{Cx, Tensor, ops};

use crate::HibariError;
use crate::net::{DECODER_IN, LOOK_AHEAD, Speech};

/// The frames whose sound the first block of a sentence completes: half a second, so that the first sound comes early.
pub const FIRST_FRAMES: usize = 40;
/// The most frames of a later block: 1.2 seconds, in rows that fill the tiles of linear layers on every tier.
pub const BLOCK_FRAMES: usize = 96;
/// Columns of a block: the decoder's input, then the pitch in Hz.
pub const BLOCK_COLUMNS: usize = DECODER_IN + 1;

/// The highest number of a sentence: beyond it, the float in a block's tensor would be another one.
pub(crate) const MAX_SENTENCE: u32 = 1 << 24;

/// The integers of a block, which lie in the first row of its tensor.
const HEADER: usize = 4;

/// A run of frames of one sentence. Its sound lags behind it: see [`Block::sound`].
#[derive(Debug, Clone)]
pub struct Block {
    /// The number of the sentence in its request.
    pub sentence: u32,
    /// The first frame.
    pub first: usize,
    /// The frame after the last one.
    pub end: usize,
    /// All frames of the sentence.
    pub total: usize,
    /// The frames, `[end - first, 131]`.
    pub rows: Tensor,
}

// --- impl Block ---

impl Block {
    /// Returns the block as one tensor: a row of numbers, then its rows.
    pub fn to_tensor(&self, cx: &Cx) -> Result<Tensor, HibariError> {
        let mut header = [0.0; BLOCK_COLUMNS];
        let numbers = [self.sentence as usize, self.first, self.end, self.total];
        header.iter_mut().zip(numbers).for_each(|(place, number)| *place = number as f32);
        let header = Tensor::from_slice(&header, [1, BLOCK_COLUMNS])?;
        Ok(ops::concat_rows(cx, &[&header, &self.rows])?)
    }

    /// Returns the block that [`Block::to_tensor`] made the tensor of.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self, HibariError> {
        let [height, BLOCK_COLUMNS] = *tensor.dims() else {
            return Err(HibariError::Block("it has another shape"));
        };
        let mut numbers = [0; HEADER];
        let header = tensor.f32s()?;
        numbers.iter_mut().zip(header).for_each(|(number, place)| *number = *place as usize);
        let [sentence, first, end, total] = numbers;
        let ordered = first < end && end <= total && end - first + 1 == height;
        if !ordered {
            return Err(HibariError::Block("its numbers contradict each other"));
        }
        let block = Self { sentence: sentence as u32, first, end, total, rows: tensor.rows(1..height)? };
        if block.sound().is_empty() {
            return Err(HibariError::Block("it completes no sound"));
        }
        Ok(block)
    }

    /// Returns whether the sentence ends with this block.
    pub fn last(&self) -> bool {
        self.end == self.total
    }

    /// Returns the frames whose sound this block completes, after those before it.
    pub fn sound(&self) -> Range<usize> {
        let end = if self.last() { self.total } else { self.end.saturating_sub(LOOK_AHEAD) };
        self.first.saturating_sub(LOOK_AHEAD)..end
    }
}

/// Cuts a sentence into blocks.
pub fn blocks(cx: &Cx, speech: &Speech, sentence: u32) -> Result<Vec<Block>, HibariError> {
    let total = speech.f0.len();
    let pitch = Tensor::from_slice(&speech.f0, [total, 1])?;
    let rows = ops::concat_columns(cx, &[&speech.frames, &pitch])?;
    let (mut first, mut end) = (0, FIRST_FRAMES + LOOK_AHEAD);
    let mut blocks = Vec::with_capacity(total / BLOCK_FRAMES + 1);
    while first < total {
        end = end.min(total);
        blocks.push(Block { sentence, first, end, total, rows: rows.rows(first..end)? });
        (first, end) = (end, end + BLOCK_FRAMES);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech(total: usize) -> Speech {
        let frames = (0..total * DECODER_IN).map(|i| i as f32).collect();
        let frames = Tensor::from_f32(frames, [total, DECODER_IN]).unwrap();
        Speech { durations: vec![total / 2], f0: (0..total).map(|i| i as f32).collect(), frames }
    }

    #[test]
    fn blocks_cover_a_sentence_and_survive_the_journey() {
        let cx = Cx::with_threads(1).unwrap();
        let blocks = blocks(&cx, &speech(200), 7).unwrap();
        let spans: Vec<_> = blocks.iter().map(|b| (b.first, b.end, b.sound())).collect();
        assert_eq!(spans, [(0, 67, 0..40), (67, 163, 40..136), (163, 200, 136..200)]);
        for block in &blocks {
            let back = Block::from_tensor(&block.to_tensor(&cx).unwrap()).unwrap();
            assert_eq!((back.sentence, back.first, back.end, back.total), (7, block.first, block.end, 200));
            assert_eq!(back.rows.f32s().unwrap(), block.rows.f32s().unwrap());
        }
        assert!(Block::from_tensor(&blocks[0].rows).is_err());
    }

    #[test]
    fn a_short_sentence_is_one_block_and_a_first_one_without_sound_is_refused() {
        let cx = Cx::with_threads(1).unwrap();
        let mut short = blocks(&cx, &speech(20), 0).unwrap();
        assert_eq!((short.len(), short[0].sound()), (1, 0..20));
        short[0].total = 500;
        assert!(Block::from_tensor(&short[0].to_tensor(&cx).unwrap()).is_err());
    }
}
