//! `whisper.encoder`: a window's spectrogram becomes what the decoder attends across to.

use mstar_contract::{
    Component, Compute, ComputeCx, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput, WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_weights::WeightFile;

use super::{PACKAGE, broken};
use crate::{Config, EncoderNetwork};

/// The component `whisper.encoder`.
pub struct Encode;

/// Its op `encode`: `mel` becomes `context`.
struct EncodeOp(EncoderNetwork);

// --- impl Encode ---

impl Encode {
    /// The component's id.
    pub const ID: &'static str = "whisper.encoder";
}

impl Component for Encode {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("encode", &["mel"], &["context"])]
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
        let network = EncoderNetwork::load(&config, &file, cx.precision).map_err(broken(Self::ID))?;
        Ok(Loaded::Stateless(Box::new(EncodeOp(network))))
    }
}

// --- impl EncodeOp ---

impl EncodeOp {
    fn encode(&self, row: &Row, cx: &ComputeCx<'_>) -> Result<RowOutput, RowError> {
        let mel = row.value("mel")?.as_tensor();
        let mel = mel.ok_or_else(|| RowError::Internal("input mel is no tensor".into()))?;
        let mut output = RowOutput::default();
        let context = self.0.forward_in_pieces(cx.cx, mel, &mut |_, _| Ok(()), &|| cx.yield_now())?;
        output.push("context", cx.value(context));
        Ok(output)
    }
}

impl Compute for EncodeOp {
    /// Windows are large enough to keep all threads busy one by one.
    fn run(&mut self, _op: &OpName, rows: &[Row], cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| self.encode(row, cx)).collect()
    }
}
