//! `hibari.cutter`: cuts text, whole or as it comes, into sentences.

use mstar_contract::{
    Component, Compute, ComputeCx, LoadCx, LoadError, Loaded, OpDecl, Recovery, RequestKey, Row, RowError, RowOutput,
    Value, WeightSource,
};
use mstar_graph::{ComponentId, OpName};

use super::{PerRequest, arrived, text_of};
use crate::text::SentenceCutter;

/// The component `hibari.cutter`.
#[derive(Debug)]
pub struct CutterNode;

/// Its op `cut`: `text`, one value or a stream of pieces, becomes `sentence`, as often as there are sentences.
#[derive(Debug, Default)]
struct Cut {
    cutters: PerRequest<SentenceCutter>,
}

// --- impl CutterNode ---

impl CutterNode {
    /// The component's id.
    pub const ID: &'static str = "hibari.cutter";
}

impl Component for CutterNode {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("cut", &["text"], &["sentence"])]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Restart
    }

    fn weights(&self) -> WeightSource {
        WeightSource::None
    }

    fn load(&self, _cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        Ok(Loaded::Stateless(Box::<Cut>::default()))
    }
}

// --- impl Cut ---

fn cut(cutter: &mut SentenceCutter, row: &Row) -> Result<RowOutput, RowError> {
    let (pieces, _, last) = arrived(row, "text")?;
    let mut sentences = Vec::new();
    for piece in pieces {
        sentences.extend(cutter.push(text_of(piece)?));
    }
    if last {
        sentences.extend(cutter.finish());
    }
    let mut output = RowOutput::default();
    sentences.into_iter().for_each(|sentence| output.push("sentence", Value::text(sentence)));
    Ok(output)
}

impl Compute for Cut {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        self.cutters.run(rows, cut)
    }

    fn retire(&mut self, key: RequestKey) {
        self.cutters.retire(key);
    }

    fn reset(&mut self) {
        self.cutters = PerRequest::default();
    }

    fn held(&self) -> usize {
        self.cutters.held()
    }
}
