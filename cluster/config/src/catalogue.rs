//! What the caller knows and a deployment may name.

/// The models that this build can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The models, in the order of listings.
    pub models: Vec<Model>,
}

/// A model: components of its own, if any, and walks over its own and other models' components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its id, as in `[model.<id>]`.
    pub id: String,
    /// The components it brings along.
    pub components: Vec<Component>,
    /// Its walks.
    pub walks: Vec<Walk>,
}

/// A node's code and weights; every model that names it shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its id, such as `smollm2.llm`.
    pub id: String,
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
}
