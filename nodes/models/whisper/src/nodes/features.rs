//! `whisper.features`: the log-mel spectrogram of the next window.

use mstar_contract::{
    Component, Compute, ComputeCx, In, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput, Value,
    WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_kernels::ops::{LogMel, MEL_HOP};
use mstar_weights::WeightFile;

use super::{Heard, PACKAGE, Window, broken};
use crate::options::Options;
use crate::windows::onset;
use crate::{Config, mel};

/// The component `whisper.features`.
pub struct Features;

/// Its op `window`: `audio` from where the window before ended, which is `next` of `whisper.segments`, becomes `mel`,
/// unless nothing can be heard in it: then nobody needs to listen. `window` says what the window is.
struct WindowOp {
    mel: LogMel,
    samples: usize,
}

/// Samples that never exceed this are silence: eight steps of 16-bit audio, 72 dB below full scale.
const INAUDIBLE: f32 = 1.0 / 4_096.0;

// --- impl Features ---

impl Features {
    /// The component's id.
    pub const ID: &'static str = "whisper.features";
}

impl Component for Features {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("window", &["audio"], &["mel", "window"]).optional("next")]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let file = WeightFile::open(cx.dir).map_err(broken(Self::ID))?;
        let config = Config::read(cx.dir, &file).map_err(broken(Self::ID))?;
        let filters = mel::filters(config.mels).map_err(broken(Self::ID))?;
        let mel = LogMel::new(&filters).map_err(broken(Self::ID))?;
        Ok(Loaded::Stateless(Box::new(WindowOp { mel, samples: config.window_samples() })))
    }
}

// --- impl WindowOp ---

impl WindowOp {
    fn window(&self, row: &Row, cx: &ComputeCx<'_>) -> Result<RowOutput, RowError> {
        let audio = row.value("audio")?.as_tensor();
        let audio = audio.ok_or_else(|| RowError::Internal("input audio is no audio".into()))?.f32s()?;
        let heard = match row.input("next") {
            Some(In::One(next)) => next.as_json().and_then(Heard::from_json),
            _ => Some(Heard::default()),
        };
        let heard = heard.ok_or_else(|| RowError::Internal("input next says nothing".into()))?;
        let total = audio.len().div_ceil(MEL_HOP);
        let seek = heard.seek.min(total);
        let frames = (total - seek).min(self.samples / MEL_HOP);
        let part = &audio[seek * MEL_HOP..audio.len().min(seek * MEL_HOP + self.samples)];
        let timestamps = Options::of(row.request())?.timestamps || total * MEL_HOP > self.samples;
        let audible = part.iter().any(|x| x.abs() > INAUDIBLE);
        let onset = if audible { onset(part) } else { 0 };
        let window = Window { seek, frames, total, timestamps, onset, heard };
        let mut output = RowOutput::default();
        if audible {
            let mut samples = part.to_vec();
            samples.resize(self.samples, 0.0);
            output.push("mel", cx.value(self.mel.run(cx.cx, &samples)?));
        }
        output.push("window", Value::json(window.to_json()));
        Ok(output)
    }
}

impl Compute for WindowOp {
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| self.window(row, cx)).collect()
    }
}
