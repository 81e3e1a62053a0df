//! `hibari.vocoder`: turns blocks of frames into sound that joins without a seam.

use mstar_contract::{
    Component, Compute, ComputeCx, Invalid, LoadCx, LoadError, Loaded, OpDecl, Recovery, RequestKey, Row, RowError,
    RowOutput, Task, WeightSource,
};
use mstar_graph::{ComponentId, Modality, OpName};
use mstar_kernels::Tensor;
use mstar_weights::WeightFile;

use super::{PACKAGE, PerRequest, arrived, broken};
use crate::dsp::SAMPLE_RATE;
use crate::{Block, HibariError, Sound, Vocoder};

/// The component `hibari.vocoder`.
#[derive(Debug)]
pub struct VocoderNode;

/// Its op `render`: a `block` of a stream becomes the `audio` that it completes.
struct Render {
    vocoder: Vocoder,
    sounds: PerRequest<Sound>,
}

// --- impl VocoderNode ---

impl VocoderNode {
    /// The component's id.
    pub const ID: &'static str = "hibari.vocoder";
}

impl Component for VocoderNode {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("render", &["block"], &["audio"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Restart
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let load = || -> Result<Vocoder, HibariError> { Vocoder::load(&WeightFile::open(cx.dir)?, cx.precision) };
        let vocoder = load().map_err(broken(Self::ID))?;
        Ok(Loaded::Stateless(Box::new(Render { vocoder, sounds: PerRequest::default() })))
    }
}

// --- impl Render ---

fn render(vocoder: &Vocoder, sound: &mut Sound, row: &Row, cx: &ComputeCx<'_>) -> Result<RowOutput, RowError> {
    let (items, first, last) = arrived(row, "block")?;
    let silent = last && first == 0 && items.is_empty();
    // Where the client also reads, silence is an answer; where it only listens, it is none.
    if silent && !row.request().outputs.contains(&Modality::Text) {
        let field = if row.request().task == Task::Speak { "input" } else { "text" };
        return Err(Invalid::new(field, "there is nothing in it that this voice can say").into());
    }
    let mut output = RowOutput::default();
    for item in items {
        let tensor = item.as_tensor().ok_or_else(|| RowError::Internal("a block is not a tensor".into()))?;
        let block = Block::from_tensor(tensor)?;
        let samples = vocoder.render(cx.cx, sound, &block, Some(row.request().seed))?;
        if !samples.is_empty() {
            output.push("audio", cx.audio(Tensor::from_slice(&samples, [samples.len()])?, SAMPLE_RATE));
        }
    }
    Ok(output)
}

impl Compute for Render {
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        let Self { vocoder, sounds } = self;
        sounds.run(rows, |sound, row| render(vocoder, sound, row, cx))
    }

    fn retire(&mut self, key: RequestKey) {
        self.sounds.retire(key);
    }

    fn reset(&mut self) {
        self.sounds = PerRequest::default();
    }

    fn held(&self) -> usize {
        self.sounds.held()
    }
}
