//! The list of models and the table of their components.

use std::sync::Arc;

use mstar_contract::{Component, Model, OpDecl};
use mstar_graph::{ComponentId, GraphProblems, ModelId, OpName, OpPorts, WalkName};

/// The models of a build.
#[derive(Clone)]
pub struct Zoo {
    entries: Vec<Entry>,
}

/// A model with the components that it brings along; its walks may name those of others as well.
#[derive(Clone)]
pub struct Entry {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The components that its crate defines.
    pub components: Vec<Arc<dyn Component>>,
}

/// A build whose models do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum ZooError {
    /// Two models have one id.
    #[error("two models are called {0}")]
    SameModel(ModelId),
    /// Two components have one id.
    #[error("two components are called {0}")]
    SameComponent(ComponentId),
    /// A graph names a component that no model brings.
    #[error("model {model} names component {component}, which no model of this build brings")]
    NoComponent {
        /// The model.
        model: ModelId,
        /// The component.
        component: ComponentId,
    },
    /// A graph uses components otherwise than they declare.
    #[error("the graph of model {model} does not fit its components")]
    Ports {
        /// The model.
        model: ModelId,
        /// All that is wrong with it.
        source: GraphProblems,
    },
    /// A model's ways and its graph do not fit.
    #[error("model {model}: walk {walk} lies on no way, or is not in the graph")]
    Ways {
        /// The model.
        model: ModelId,
        /// The walk.
        walk: WalkName,
    },
    /// A graph is not well formed.
    #[error("the graph of a model is not well formed")]
    Graph(#[from] GraphProblems),
}

// --- impl Zoo ---

impl Zoo {
    /// Puts models together and checks every graph against the components that it names.
    pub fn new(entries: Vec<Entry>) -> Result<Self, ZooError> {
        let zoo = Self { entries };
        for (at, entry) in zoo.entries.iter().enumerate() {
            let id = entry.model.id();
            if zoo.entries[..at].iter().any(|before| before.model.id() == id) {
                return Err(ZooError::SameModel(id));
            }
        }
        let ids: Vec<ComponentId> = zoo.components().map(|component| component.id()).collect();
        if let Some(twice) = ids.iter().enumerate().find(|(at, id)| ids[..*at].contains(id)) {
            return Err(ZooError::SameComponent(twice.1.clone()));
        }
        zoo.entries.iter().try_for_each(|entry| zoo.check(&*entry.model))?;
        Ok(zoo)
    }

    /// Returns the same models and more.
    pub fn and(self, more: Vec<Entry>) -> Result<Self, ZooError> {
        Self::new(self.entries.into_iter().chain(more).collect())
    }

    /// Returns the models with what they bring along, in the order of listings.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the model of this id.
    pub fn model(&self, id: &str) -> Option<&Arc<dyn Model>> {
        self.entries.iter().map(|entry| &entry.model).find(|model| model.id() == id)
    }

    /// Returns the component of this id, whichever model brings it.
    pub fn component(&self, id: &str) -> Option<&Arc<dyn Component>> {
        self.components().find(|component| component.id() == id)
    }

    /// Returns the id of the model that brings a component.
    pub fn home(&self, component: &str) -> Option<ModelId> {
        let brings = |entry: &&Entry| entry.components.iter().any(|own| own.id() == component);
        self.entries.iter().find(brings).map(|entry| entry.model.id())
    }

    /// Returns all components.
    pub fn components(&self) -> impl Iterator<Item = &Arc<dyn Component>> {
        self.entries.iter().flat_map(|entry| &entry.components)
    }

    fn check(&self, model: &dyn Model) -> Result<(), ZooError> {
        for (_, component) in model.graph().nodes() {
            if self.component(component.as_str()).is_none() {
                return Err(ZooError::NoComponent { model: model.id(), component: component.clone() });
            }
        }
        let (graph, ways) = (model.graph(), model.ways());
        let lost = graph.walks().map(|(_, walk)| &walk.name).find(|walk| !ways.iter().any(|way| way.contains(*walk)));
        let unknown = || ways.iter().flatten().find(|walk| graph.find_walk(walk.as_str()).is_none());
        if let Some(walk) = lost.or_else(unknown) {
            return Err(ZooError::Ways { model: model.id(), walk: walk.clone() });
        }
        let ports = |component: &ComponentId, op: &OpName| {
            let ops = self.component(component.as_str())?.ops();
            ops.iter().find(|decl| decl.name == *op).map(ports)
        };
        model.graph().check_ports(ports).map_err(|source| ZooError::Ports { model: model.id(), source })
    }
}

impl std::fmt::Debug for Zoo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| entry.model.id())).finish()
    }
}

// --- impl Entry ---

impl Entry {
    /// Returns a model with the components that it brings along.
    pub fn new(model: impl Model + 'static, components: Vec<Arc<dyn Component>>) -> Self {
        Self { model: Arc::new(model), components }
    }
}

/// Returns an op's ports as graphs know them.
fn ports(op: &OpDecl) -> OpPorts {
    OpPorts {
        inputs: op.inputs.clone(),
        outputs: op.outputs.clone(),
        signals: op.stop.iter().map(|name| name.as_str().into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use mstar_contract::{Invalid, LoadCx, LoadError, Loaded, ModelCard, Plan, Recovery, Request, WeightSource};
    use mstar_graph::{Graph, GraphBuilder, Modality, step};

    use super::*;

    /// A component with the op `run`, from `in` to `out`.
    struct Part(&'static str);

    /// A model with one walk: its only step is `run` of this component, with this input.
    struct One {
        id: &'static str,
        graph: Arc<Graph>,
    }

    impl One {
        fn new(id: &'static str, component: &str, input: &str) -> Self {
            let mut graph = GraphBuilder::new();
            let run = step("part", "run").input(input).client("out", Modality::Text);
            graph.node("part", component).partition("main").walk("main", "run", run);
            Self { id, graph: graph.build().unwrap() }
        }
    }

    impl Component for Part {
        fn id(&self) -> ComponentId {
            self.0.into()
        }
        fn ops(&self) -> Vec<OpDecl> {
            vec![OpDecl::new("run", &["in"], &["out"])]
        }
        fn recovery(&self) -> Recovery {
            Recovery::Redo
        }
        fn weights(&self) -> WeightSource {
            WeightSource::None
        }
        fn load(&self, _: &LoadCx<'_>) -> Result<Loaded, LoadError> {
            Err(LoadError { component: self.id(), message: "it has nothing to load".to_owned() })
        }
    }

    impl Model for One {
        fn id(&self) -> ModelId {
            self.id.into()
        }
        fn graph(&self) -> &Arc<Graph> {
            &self.graph
        }
        fn card(&self) -> ModelCard {
            ModelCard::default()
        }
        fn plan(&self, _: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
            Err(Invalid::new("model", "it serves nothing"))
        }
    }

    fn check(entries: Vec<Entry>, expected: Result<(), &str>) {
        let told = Zoo::new(entries).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(told, expected.map_err(str::to_owned));
    }

    #[test]
    fn a_composite_uses_the_components_of_others() {
        let parts: Vec<Arc<dyn Component>> = vec![Arc::new(Part("a.part"))];
        let zoo = Zoo::new(vec![
            Entry::new(One::new("a", "a.part", "in"), parts),
            Entry::new(One::new("b", "a.part", "in"), vec![]),
        ]);
        assert_eq!(zoo.unwrap().home("a.part").unwrap(), "a");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let part = |id: &'static str| -> Vec<Arc<dyn Component>> { vec![Arc::new(Part(id))] };
        let entry = |id, component, input, own| Entry::new(One::new(id, component, input), part(own));
        check(vec![entry("a", "a.part", "in", "a.part")], Ok(()));
        check(
            vec![entry("a", "b.part", "in", "a.part")],
            Err("model a names component b.part, which no model of this build brings"),
        );
        check(vec![entry("a", "a.part", "text", "a.part")], Err("the graph of model a does not fit its components"));
        let twice = || entry("a", "a.part", "in", "a.part");
        check(vec![twice(), twice()], Err("two models are called a"));
        check(vec![twice(), entry("b", "a.part", "in", "a.part")], Err("two components are called a.part"));
    }
}
