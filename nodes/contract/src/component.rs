//! Components: the weights and ops that walks are made of.

use std::path::Path;
use std::sync::Arc;

use mstar_graph::{ComponentId, LoopName, OpName, PortDecl};
use mstar_kernels::{Cx, Precision};

use crate::{Compute, Decoder, Engine, Gauge, KvGeometry};

/// A unit of computation that a graph's nodes name: ops over one set of weights.
///
/// A running component is identified by (id, weights, precision): models that name the same identity share one node
/// actor, loaded once.
pub trait Component: Send + Sync {
    /// Returns the id, `<model>.<node>`, e.g. `smollm2.llm`.
    fn id(&self) -> ComponentId;

    /// Returns the ops with their ports.
    fn ops(&self) -> Vec<OpDecl>;

    /// Returns what to do for a request whose state at this node was lost.
    fn recovery(&self) -> Recovery;

    /// Returns where its weights come from.
    fn weights(&self) -> WeightSource;

    /// Returns the shape of the KV that it keeps with the weights of its package, if it keeps any: a deployment is checked
    /// against it before anything is loaded.
    fn kv(&self, _precision: Precision) -> Option<KvGeometry> {
        None
    }

    /// Returns whether it also computes on a GPU: its code leaves numbers where the kernels put them, and asks for them
    /// when it reads them. A rank on a GPU refuses the others.
    fn on_gpu(&self) -> bool {
        false
    }

    /// Loads the weights and returns what computes. Called on the rank's compute thread.
    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError>;
}

/// One entry point of a component.
#[derive(Clone, Debug)]
pub struct OpDecl {
    /// Its name within the component.
    pub name: OpName,
    /// Its inputs.
    pub inputs: Vec<PortDecl>,
    /// Its possible outputs.
    pub outputs: Vec<mstar_graph::Port>,
    /// The loop it may end, by name.
    pub stop: Option<LoopName>,
    /// How it uses the KV pages, when it does.
    pub kv: Option<KvUse>,
    /// Most rows it can take in a batch, whatever the deployment allows; 0 for no bound of its own.
    pub max_rows: usize,
}

/// How an op of a paged component treats its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvUse {
    /// Forgets what the sequence held and begins anew.
    Begin,
    /// Goes on where the sequence stands.
    Extend,
}

/// The remedy for a request whose state at a node was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The node keeps nothing between steps: run the same step again.
    Redo,
    /// The node keeps a KV sequence: rebuild it from the journal, then run the same step again.
    Replay,
    /// The node keeps a state that cannot be rebuilt from a journal: run the request again and skip what the client has.
    Restart,
}

/// Where a component's weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightSource {
    /// It has none.
    None,
    /// The folder of this weight package, or the folder that the deployment names for it.
    Package(&'static str),
}

/// What a component is given to load.
pub struct LoadCx<'a> {
    /// The folder with its weights; meaningless for [`WeightSource::None`].
    pub dir: &'a Path,
    /// In what numbers to compute.
    pub precision: Precision,
    /// The rank's kernels.
    pub cx: &'a Cx,
    /// Counts the tensors on the rank.
    pub gauge: &'a Arc<Gauge>,
    /// Longest audio of a request, in seconds: what the deployment lets an op decode.
    pub audio_seconds: u32,
    /// Most tokens that a request may have sampled: what the deployment allows, also where the request names no bound.
    pub max_output_tokens: u32,
}

/// What a component becomes when it is loaded; an engine is built around it.
pub enum Loaded {
    /// Rows in, rows out.
    Stateless(Box<dyn Compute>),
    /// A transformer over paged KV with a sampler behind it.
    Paged(Box<dyn Decoder>),
    /// An engine of its own.
    Engine(Box<dyn Engine>),
}

/// A component could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{component}: {message}")]
pub struct LoadError {
    /// Which component.
    pub component: ComponentId,
    /// What is wrong, with the file or tensor.
    pub message: String,
}

impl OpDecl {
    /// Returns an op with these ports that stops no loop and uses no KV.
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        Self {
            name: name.into(),
            inputs: inputs.iter().map(|&port| PortDecl { name: port.into(), optional: false }).collect(),
            outputs: outputs.iter().map(|&port| port.into()).collect(),
            stop: None,
            kv: None,
            max_rows: 0,
        }
    }

    /// Marks an input as one that may stay empty.
    pub fn optional(mut self, port: &str) -> Self {
        self.inputs.push(PortDecl { name: port.into(), optional: true });
        self
    }

    /// Names the loop that the op may end.
    pub fn stops(mut self, name: &str) -> Self {
        self.stop = Some(name.into());
        self
    }

    /// Says how the op uses its KV sequence.
    pub fn kv(mut self, kv: KvUse) -> Self {
        self.kv = Some(kv);
        self
    }

    /// Returns whether its rows go through one pass with rows of the component's other ops of which this holds: all
    /// that use KV only append tokens to their sequences.
    pub fn shares_passes(&self) -> bool {
        self.kv.is_some()
    }
}
