//! What the caller knows and a deployment may name.

/// The models that this build can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The models, in the order of listings.
    pub models: Vec<Model>,
}

/// A model: components of its own, if any, and walks over its own and other models' components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// Its id, as in `[model.<id>]`.
    pub id: String,
    /// The components it brings along.
    pub components: Vec<Component>,
    /// Its walks.
    pub walks: Vec<Walk>,
    /// The ways that requests may go: for each the names of all walks that one request takes. A walk on none is taken by
    /// itself.
    pub ways: Vec<Vec<String>>,
    /// Walks that must share a placement.
    pub bonds: Vec<Bond>,
}

/// Walks that must find a component in one place, because a request that takes several of them leaves something there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bond {
    /// The component's id.
    pub component: String,
    /// The walks' names.
    pub walks: Vec<String>,
    /// What is left there, for people.
    pub left: String,
}

/// A node's code and weights; every model that names it shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its id, such as `smollm2.llm`.
    pub id: String,
    /// Whether it also computes on a GPU.
    pub gpu: bool,
    /// Whether it keeps KV pages.
    pub kv: bool,
    /// How large its KV pages are with the weights of its package, where that is known before they are loaded.
    pub page: Option<PageBytes>,
}

/// The bytes of a KV page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBytes {
    /// In float32.
    pub f32: u64,
    /// In bfloat16.
    pub bf16: u64,
}

/// A walk and the components it visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Its name, unique in its model.
    pub name: String,
    /// Ids of the components it visits.
    pub components: Vec<String>,
}

// --- impl Catalogue ---

impl Catalogue {
    /// Returns the model of this id.
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Returns the model that brings a component along.
    pub fn home(&self, component: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.components.iter().any(|own| own.id == component))
    }

    /// Returns the component of this id, whichever model brings it.
    pub fn component(&self, id: &str) -> Option<&Component> {
        self.models.iter().flat_map(|model| &model.components).find(|component| component.id == id)
    }
}

// --- impl Model ---

impl Model {
    /// Returns the walk of this name.
    pub fn walk(&self, name: &str) -> Option<&Walk> {
        self.walks.iter().find(|walk| walk.name == name)
    }

    /// Returns what a walk lacks where only some walks are served: for each way that it lies on, the walks that are not
    /// among the served. Nothing when it lacks nothing.
    pub(crate) fn lacks(&self, walk: &str, served: &[&str]) -> Vec<Vec<&str>> {
        let ways = self.ways.iter().filter(|way| way.iter().any(|name| name == walk));
        let lacking: Vec<Vec<&str>> =
            ways.map(|way| way.iter().map(String::as_str).filter(|name| !served.contains(name)).collect()).collect();
        if lacking.iter().any(Vec::is_empty) { Vec::new() } else { lacking }
    }
}
