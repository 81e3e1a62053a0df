//! Blocks to sound: the decoder and the synthesis, with what runs on from one block to the next.

use mstar_kernels::{Cx, NoiseKey, Precision, ops};
use mstar_weights::WeightFile;

use crate::HibariError;
use crate::block::Block;
use crate::dsp::{Span, Synth, Tail};
use crate::net::{DECODER_IN, Decoder, Held};

/// The second half of the model.
#[derive(Debug)]
pub struct Vocoder {
    decoder: Decoder,
    synth: Synth,
}

/// The sound of one request so far, as much as the next block needs of it.
#[derive(Debug, Clone, Default)]
pub struct Sound {
    held: Held,
    /// The pitch of the frames that the synthesis still looks at, from frame `f0_start` on.
    f0: Vec<f32>,
    f0_start: usize,
    tail: Tail,
    /// The sentence and the frame that must come next, once one has begun.
    next: Option<(u32, usize)>,
}

// --- impl Vocoder ---

impl Vocoder {
    /// Loads this half of the weights.
    pub fn load(file: &WeightFile, precision: Precision) -> Result<Self, HibariError> {
        Ok(Self { decoder: Decoder::load(file, precision)?, synth: Synth::new()? })
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
        let head = self.decoder.run(cx, &mut sound.held, &frames, block.last())?;
        let f0 = ops::columns(cx, &block.rows, DECODER_IN..DECODER_IN + 1)?;
        sound.f0.extend(f0.f32s()?);
        let completed = block.sound();
        let span =
            Span { start: completed.start, total: block.total, head: &head, f0: &sound.f0, f0_start: sound.f0_start };
        let noise = seed.map(|seed| NoiseKey { seed, stream: block.sentence });
        let samples = self.synth.render(cx, &mut sound.tail, span, noise)?;
        // The next span looks back at the last frame of this one.
        let forgotten = completed.end.saturating_sub(1).max(sound.f0_start);
        sound.f0.drain(..forgotten - sound.f0_start);
        sound.f0_start = forgotten;
        Ok(samples)
    }
}

// --- impl Sound ---

impl Sound {
    /// Takes note of a block, which must follow the one before it or begin a sentence.
    fn expect(&mut self, block: &Block) -> Result<(), HibariError> {
        let place = (block.sentence, block.first);
        let begins =
            block.first == 0 && self.next.is_none_or(|(sentence, frame)| frame == 0 && sentence <= block.sentence);
        if !begins && self.next != Some(place) {
            return Err(HibariError::Order { sentence: block.sentence, frame: block.first });
        }
        let next = if block.last() { (block.sentence + 1, 0) } else { (block.sentence, block.end) };
        if begins {
            *self = Self::default();
        }
        self.next = Some(next);
        Ok(())
    }
}
