//! A model of which a deployment serves only some walks.

use std::sync::Arc;

use mstar_contract::{Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{Graph, ModelId, WalkName};

/// Serves a model's requests as long as all walks that they may take are served.
pub(crate) struct Restricted {
    model: Arc<dyn Model>,
    walks: Vec<String>,
}

// --- impl Restricted ---

impl Restricted {
    /// Returns the model as it is when all its walks are served, else one that refuses the rest.
    pub(crate) fn of(model: &Arc<dyn Model>, walks: &[String]) -> Arc<dyn Model> {
        if model.graph().walks().all(|(_, walk)| walks.iter().any(|served| walk.name == served.as_str())) {
            return Arc::clone(model);
        }
        Arc::new(Self { model: Arc::clone(model), walks: walks.to_vec() })
    }
}

impl Model for Restricted {
    fn id(&self) -> ModelId {
        self.model.id()
    }

    fn graph(&self) -> &Arc<Graph> {
        self.model.graph()
    }

    fn card(&self) -> ModelCard {
        self.model.card()
    }

    fn ways(&self) -> Vec<Vec<WalkName>> {
        self.model.ways()
    }

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        let plan = self.model.plan(request)?;
        let served = |walk: &WalkName| self.walks.iter().any(|served| *walk == served.as_str());
        let taken = plan.begin().into_iter().map(|next| next.walk).chain(plan.follows());
        match taken.into_iter().find(|walk| !served(walk)) {
            None => Ok(plan),
            Some(walk) => {
                let served = self.walks.join(", ");
                let message = format!("the request needs walk {walk} of {}; served here: {served}", self.id());
                Err(Invalid::new("model", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use mstar_contract::{Message, Part, Role, Sampling, Task};
    use mstar_zoo::Zoo;

    use super::*;

    fn ask(walk: &str) -> Arc<Request> {
        Arc::new(Request {
            id: "r".into(),
            tenant: Default::default(),
            model: "fake".into(),
            task: Task::Generate,
            messages: vec![Message { role: Role::User, parts: vec![Part::Text("hello".into())] }],
            media: vec![],
            outputs: BTreeSet::new(),
            sampling: Sampling::default(),
            seed: 0,
            options: BTreeMap::from([("walk".to_owned(), walk.into())]),
        })
    }

    #[test]
    fn walks_that_are_not_served_are_refused_by_name() {
        let zoo = Zoo::with_fake().unwrap();
        let model = Restricted::of(zoo.model("fake").unwrap(), &["echo".to_owned()]);
        assert!(model.plan(&ask("echo")).is_ok());
        let refused = model.plan(&ask("chat")).map(|_| ()).unwrap_err();
        assert_eq!(refused.message, "the request needs walk chat of fake; served here: echo");
    }

    #[test]
    fn walks_that_follow_are_looked_at_before_a_request_begins() {
        let zoo = Zoo::with_fake().unwrap();
        let refused = |walks: &[&str]| {
            let walks: Vec<String> = walks.iter().map(|&walk| walk.to_owned()).collect();
            let model = Restricted::of(zoo.model("fake").unwrap(), &walks);
            model.plan(&ask("recall")).err().map(|invalid| invalid.message)
        };
        assert_eq!(refused(&["note", "recall"]), None);
        let told = refused(&["note"]);
        assert_eq!(told.as_deref(), Some("the request needs walk recall of fake; served here: note"));
    }
}
