//! A model of which a deployment serves only some walks.

use std::sync::Arc;

use mstar_contract::{Invalid, Model, ModelCard, Plan, Request};
use mstar_graph::{Graph, ModelId};

/// Serves a model's requests as long as they begin with walks that the deployment serves.
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

    fn plan(&self, request: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
        let plan = self.model.plan(request)?;
        let served = |walk: &str| self.walks.iter().any(|served| served == walk);
        match plan.begin().into_iter().find(|next| !served(next.walk.as_str())) {
            None => Ok(plan),
            Some(next) => {
                let (walk, served) = (next.walk, self.walks.join(", "));
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
}
