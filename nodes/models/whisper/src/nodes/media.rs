//! `whisper.media`: an uploaded file becomes samples.

use mstar_contract::{
    Component, Compute, ComputeCx, Invalid, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput,
    Value, WeightSource,
};
use mstar_graph::{ComponentId, Modality, OpName};
use mstar_kernels::Tensor;
use mstar_media::{Limits, decode_audio, resample};

/// Samples per second that the model listens at.
pub(crate) const SAMPLE_RATE: u32 = 16_000;

/// The component `whisper.media`.
pub struct MediaIn;

/// Its op `decode`: the bytes of `upload`, a file of any kind and rate, become `audio`, mono at 16 kHz.
struct DecodeFile {
    limits: Limits,
}

// --- impl MediaIn ---

impl MediaIn {
    /// The component's id.
    pub const ID: &'static str = "whisper.media";
}

impl Component for MediaIn {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("decode", &["upload"], &["audio"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        // What an upload may weigh is the server's to say: it has refused larger ones.
        let limits = Limits { max_seconds: cx.audio_seconds, max_bytes: usize::MAX };
        Ok(Loaded::Stateless(Box::new(DecodeFile { limits })))
    }
}

// --- impl DecodeFile ---

impl Compute for DecodeFile {
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| decode(row, &self.limits, cx)).collect()
    }
}

fn decode(row: &Row, limits: &Limits, cx: &ComputeCx<'_>) -> Result<RowOutput, RowError> {
    let Value::Bytes(bytes) = row.value("upload")? else {
        return Err(RowError::Internal("input upload is no file".into()));
    };
    let field = row.request().first_media(Modality::Audio).map_or("file", |media| media.field.as_str());
    let audio = decode_audio(bytes, limits).and_then(|audio| resample(&audio, SAMPLE_RATE));
    let audio = audio.map_err(|error| Invalid::new(field, error.to_string()))?;
    let count = audio.samples.len();
    let mut output = RowOutput::default();
    output.push("audio", cx.audio(Tensor::from_f32(audio.samples, [count])?, SAMPLE_RATE));
    Ok(output)
}
