//! `hibari.acoustic`: reads a sentence into symbols and gives its frames of text, pitch and energy, in blocks.

use std::sync::Arc;

use mstar_contract::{
    Component, Compute, ComputeCx, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput, Value,
    WeightSource,
};
use mstar_graph::{ComponentId, Modality, OpName};
use mstar_weights::WeightFile;
use serde_json::json;

use super::{PACKAGE, arrived, broken, text_of};
use crate::block::MAX_SENTENCE;
use crate::net::{Acoustic, Speller};
use crate::text::{Guess, Reader};
use crate::{HibariError, SpeechOptions, blocks};

/// The component `hibari.acoustic`.
#[derive(Debug)]
pub struct AcousticNode;

/// Its op `say`: a `sentence` of a stream becomes its `block`s, none when nothing in it can be said. What has no
/// reading is told as `unread` to those who want details.
struct Say {
    reader: Reader,
    acoustic: Acoustic,
}

/// The most parts of a sentence: each has a number of its own.
const PARTS: u64 = 32;

// --- impl AcousticNode ---

impl AcousticNode {
    /// The component's id.
    pub const ID: &'static str = "hibari.acoustic";
}

impl Component for AcousticNode {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("say", &["sentence"], &["block", "unread"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Stateless(Box::new(Say::load(cx).map_err(broken(Self::ID))?)))
    }
}

// --- impl Say ---

impl Say {
    fn load(load: &LoadCx<'_>) -> Result<Self, HibariError> {
        let letters = WeightFile::open(&load.dir.join("oov.safetensors"))?;
        let speller: Arc<dyn Guess> = Arc::new(Speller::load(load.cx, &letters, &load.dir.join("oov.json"))?);
        let acoustic = Acoustic::load(&WeightFile::open(load.dir)?, load.precision)?;
        Ok(Self { reader: Reader::new(speller), acoustic })
    }

    fn row(&self, row: &Row, cx: &ComputeCx<'_>) -> Result<RowOutput, RowError> {
        let (sentences, first, _) = arrived(row, "sentence")?;
        let speed = SpeechOptions::of(row.request())?.speed;
        let mut output = RowOutput::default();
        for (sentence, number) in sentences.iter().zip(first..) {
            let reading = self.reader.read(text_of(sentence)?);
            // Reading takes as long as a step of a language model, and so does what follows.
            cx.yield_now();
            if !reading.unread.is_empty() && row.request().outputs.contains(&Modality::Detail) {
                output.push("unread", Value::json(json!({ "sentence": number, "unread": reading.unread })));
            }
            for (ids, part) in reading.parts.iter().zip(0..) {
                let number = number_of(number, part).ok_or_else(|| RowError::TooLarge("too much to say".into()))?;
                let speech = self.acoustic.run(cx.cx, ids, speed)?;
                for block in blocks(cx.cx, &speech, number)? {
                    output.push("block", cx.value(block.to_tensor(cx.cx)?));
                }
            }
        }
        Ok(output)
    }
}

impl Compute for Say {
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| self.row(row, cx)).collect()
    }
}

/// Returns the number that a sentence's part has among the sentences that the vocoder hears.
fn number_of(sentence: u64, part: u64) -> Option<u32> {
    let number = sentence.checked_mul(PARTS).filter(|_| part < PARTS)? + part;
    u32::try_from(number).ok().filter(|&number| number <= MAX_SENTENCE)
}
