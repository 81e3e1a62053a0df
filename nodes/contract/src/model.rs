//! Models: a graph, its components, and the plan that picks walks for a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use mstar_graph::{Graph, KeptName, Modality, ModelId, PartitionName, Port, WalkName};

use crate::{Invalid, Request, Value};

/// A served model: walks over components, and how a request chooses among them.
pub trait Model: Send + Sync {
    /// Returns what users call it.
    fn id(&self) -> ModelId;

    /// Returns its graph, shared by all requests.
    fn graph(&self) -> &Arc<Graph>;

    /// Returns what it takes and gives.
    fn card(&self) -> ModelCard;

    /// Returns the ways that requests may go: for each, all walks that one request may take, whichever partition takes
    /// them and when. Every walk lies on at least one way. Where a deployment serves only some walks, a request's way
    /// must be among them as a whole.
    fn ways(&self) -> Vec<Vec<WalkName>> {
        self.graph().walks().map(|(_, walk)| vec![walk.name.clone()]).collect()
    }

    /// Returns the plan for a request, or what is wrong with the request.
    ///
    /// Pure and quick: it looks at what kinds of media there are, it does not decode them.
    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid>;
}

/// Which walks a request takes. Pure: the same questions get the same answers, also when the request runs again.
pub trait Plan: Send + Sync {
    /// Returns the first walk of every partition that takes part.
    fn begin(&self) -> Vec<NextWalk>;

    /// Returns the walks that may follow those that it begins with. A request whose plan goes on with any other fails.
    fn follows(&self) -> Vec<WalkName> {
        Vec::new()
    }

    /// Returns the walk that follows in a partition, or nothing when the partition is done.
    fn next(&self, _partition: &PartitionName, _finished: &WalkName, _kept: &Kept) -> Option<NextWalk> {
        None
    }
}

/// A walk to take.
#[derive(Clone, Debug)]
pub struct NextWalk {
    /// The partition that takes it.
    pub partition: PartitionName,
    /// Its name there.
    pub walk: WalkName,
    /// What goes into it.
    pub inputs: Vec<(Port, Value)>,
    /// Bounds of loops that take theirs from the request, by name.
    pub limits: Vec<(String, u32)>,
}

/// What a request's walks have kept, by name.
pub type Kept = BTreeMap<KeptName, Value>;

/// What a model takes and gives.
#[derive(Clone, Debug, Default)]
pub struct ModelCard {
    /// One line for people.
    pub summary: String,
    /// What may go in.
    pub inputs: Vec<Modality>,
    /// What may come out.
    pub outputs: Vec<Modality>,
    /// Voices, for models that speak; the first is the default.
    pub voices: Vec<String>,
    /// Options it knows, beyond sampling.
    pub options: Vec<String>,
    /// Sampling of tokens applies to it.
    pub samples_tokens: bool,
    /// Longest sequence in tokens; 0 where that means nothing.
    pub context: usize,
}

impl NextWalk {
    /// Returns a walk without inputs.
    pub fn new(partition: &str, walk: &str) -> Self {
        Self { partition: partition.into(), walk: walk.into(), inputs: Vec::new(), limits: Vec::new() }
    }

    /// Adds an input.
    pub fn input(mut self, port: &str, value: Value) -> Self {
        self.inputs.push((port.into(), value));
        self
    }

    /// Bounds a loop that takes its bound from the request.
    pub fn limit(mut self, name: &str, bound: u32) -> Self {
        self.limits.push((name.to_owned(), bound));
        self
    }
}
