//! Blocks to sound: the decoder and the synthesis, with what runs on from one block to the next.

use mstar_kernels::{Cx, Precision, ops};
use mstar_weights::WeightFile;

use crate::HibariError;
use crate::block::Block;
use crate::dsp::{Noise, Span, Synth, Tail};
use crate::net::{DECODER_IN, Decoder};

/// The second half of the model.
#[derive(Debug)]
pub struct Vocoder {
    decoder: Decoder,
    synth: Synth,
}

/// The sound of one request so far, as much as the next block needs of it.
#[derive(Debug, Clone, Default)]
pub struct Sound {
    tail: Tail,
    /// The sentence and the frame that must come next, once one has begun.
    next: Option<(u32, usize)>,
}

// --- impl Vocoder ---

impl Vocoder {
    /// Loads this half of the weights.
    pub fn load(file: &WeightFile, precision: Precision) -> Result<Self, HibariError> {
        Ok(Self { decoder: Decoder::load(file, precision)?, synth: Synth::new() })
    }

    /// Returns the samples that a block completes. `seed` keys the noise; without one there is none.
    pub fn render(
        &self,
        cx: &Cx,
        sound: &mut Sound,
        block: &Block,
        seed: Option<u64>,
    ) -> Result<Vec<f32>, HibariError> {
        sound.expect(block)?;
        let frames = ops::columns(cx, &block.rows, 0..DECODER_IN)?;
        let head = self.decoder.run(cx, &frames, block.start - block.first..block.end - block.first)?;
        let f0 = ops::columns(cx, &block.rows, DECODER_IN..DECODER_IN + 1)?;
        let span =
            Span { start: block.start, total: block.total, head: head.f32s()?, f0: f0.f32s()?, f0_start: block.first };
        let noise = seed.map(|seed| Noise::new(seed, block.sentence));
        Ok(self.synth.render(&mut sound.tail, span, noise))
    }
}

// --- impl Sound ---

impl Sound {
    /// Takes note of a block, which must follow the one before it or begin a sentence.
    fn expect(&mut self, block: &Block) -> Result<(), HibariError> {
        let place = (block.sentence, block.start);
        let begins =
            block.start == 0 && self.next.is_none_or(|(sentence, frame)| frame == 0 && sentence <= block.sentence);
        if !begins && self.next != Some(place) {
            return Err(HibariError::Order { sentence: block.sentence, frame: block.start });
        }
        let ends = block.end >= block.total;
        if begins {
            self.tail = Tail::default();
        }
        self.next = Some(if ends { (block.sentence + 1, 0) } else { (block.sentence, block.end) });
        Ok(())
    }
}
