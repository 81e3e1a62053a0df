//! The items between the two halves of the model: some new frames of a sentence and the context that the
//! decoder needs around them.

use mstar_kernels::{Cx, Tensor, ops};

use crate::HibariError;
use crate::net::{CONTEXT, DECODER_IN, Speech};

/// The most new frames of a block: half a second.
pub const BLOCK_FRAMES: usize = 40;
/// Columns of a block: the decoder's input, then the pitch in Hz.
pub const BLOCK_COLUMNS: usize = DECODER_IN + 1;

/// The highest number of a sentence: beyond it, the float in a block's tensor would be another one.
pub(crate) const MAX_SENTENCE: u32 = 1 << 24;

/// The integers of a block, which lie in the first row of its tensor.
const HEADER: usize = 5;

/// A run of frames of one sentence, with up to [`CONTEXT`] frames on either side.
#[derive(Debug, Clone)]
pub struct Block {
    /// The number of the sentence in its request.
    pub sentence: u32,
    /// The first new frame.
    pub start: usize,
    /// The frame after the last new one.
    pub end: usize,
    /// All frames of the sentence.
    pub total: usize,
    /// The frame of the first row.
    pub first: usize,
    /// The rows `[frames, 131]`.
    pub rows: Tensor,
}

// --- impl Block ---

impl Block {
    /// Returns the block as one tensor: a row of numbers, then its rows.
    pub fn to_tensor(&self, cx: &Cx) -> Result<Tensor, HibariError> {
        let mut header = [0.0; BLOCK_COLUMNS];
        let numbers = [self.sentence as usize, self.start, self.end, self.total, self.first];
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
        let [sentence, start, end, total, first] = numbers;
        let ordered = first <= start && start < end && end <= total && end - first < height;
        if !ordered {
            return Err(HibariError::Block("its numbers contradict each other"));
        }
        Ok(Self { sentence: sentence as u32, start, end, total, first, rows: tensor.rows(1..height)? })
    }
}

/// Cuts a sentence into blocks of at most [`BLOCK_FRAMES`] new frames.
pub fn blocks(cx: &Cx, speech: &Speech, sentence: u32) -> Result<Vec<Block>, HibariError> {
    let total = speech.f0.len();
    let pitch = Tensor::from_slice(&speech.f0, [total, 1])?;
    let rows = ops::concat_columns(cx, &[&speech.frames, &pitch])?;
    let cut = |start: usize| {
        let end = (start + BLOCK_FRAMES).min(total);
        let first = start.saturating_sub(CONTEXT);
        let rows = rows.rows(first..(end + CONTEXT).min(total))?;
        Ok(Block { sentence, start, end, total, first, rows })
    };
    (0..total).step_by(BLOCK_FRAMES).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_a_sentence_and_survive_the_journey() {
        let cx = Cx::with_threads(1).unwrap();
        let total = 100;
        let frames =
            Tensor::from_f32((0..total * DECODER_IN).map(|i| i as f32).collect(), [total, DECODER_IN]).unwrap();
        let speech = Speech { durations: vec![50], f0: (0..total).map(|i| i as f32).collect(), frames };
        let blocks = blocks(&cx, &speech, 7).unwrap();
        let spans: Vec<_> = blocks.iter().map(|b| (b.first, b.start, b.end, b.rows.dims()[0])).collect();
        assert_eq!(spans, [(0, 0, 40, 67), (13, 40, 80, 87), (53, 80, 100, 47)]);
        for block in &blocks {
            let back = Block::from_tensor(&block.to_tensor(&cx).unwrap()).unwrap();
            assert_eq!(
                (back.sentence, back.start, back.end, back.total, back.first),
                (7, block.start, block.end, 100, block.first)
            );
            assert_eq!(back.rows.f32s().unwrap(), block.rows.f32s().unwrap());
        }
        assert!(Block::from_tensor(&blocks[0].rows).is_err());
    }
}
