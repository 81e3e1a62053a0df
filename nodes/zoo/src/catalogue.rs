//! What a deployment file may name.

use mstar_config::Catalogue;
use mstar_contract::Precision;
use mstar_engines::page_bytes;
use mstar_graph::{Graph, WalkIx, WalkName};

use crate::bonds::bonds;
use crate::{Entry, Zoo};

// --- impl Zoo ---

impl Zoo {
    /// Returns what a deployment file may name: models, their components, their walks.
    pub fn catalogue(&self) -> Catalogue {
        Catalogue { models: self.entries().iter().map(|entry| listed(entry, self)).collect() }
    }
}

fn listed(entry: &Entry, zoo: &Zoo) -> mstar_config::Model {
    let graph = entry.model.graph();
    let components = entry.components.iter().map(|component| mstar_config::Component {
        id: component.id().as_str().to_owned(),
        gpu: component.on_gpu(),
        kv: component.ops().iter().any(|op| op.kv.is_some()),
        page: component
            .kv(Precision::F32)
            .zip(component.kv(Precision::Bf16))
            .map(|(f32, bf16)| mstar_config::PageBytes { f32: page_bytes(&f32), bf16: page_bytes(&bf16) }),
    });
    let walks = graph
        .walks()
        .map(|(ix, walk)| mstar_config::Walk { name: walk.name.as_str().to_owned(), components: visited(graph, ix) });
    let named = |way: Vec<WalkName>| way.iter().map(|walk| walk.as_str().to_owned()).collect();
    mstar_config::Model {
        id: entry.model.id().as_str().to_owned(),
        components: components.collect(),
        walks: walks.collect(),
        ways: entry.model.ways().into_iter().map(named).collect(),
        bonds: bonds(&*entry.model, zoo),
    }
}

/// Returns the components that a walk visits, each once, in order.
fn visited(graph: &Graph, walk: WalkIx) -> Vec<String> {
    let mut components: Vec<String> = Vec::new();
    for step in graph.walk_steps(walk) {
        let id = graph.step(step).component.as_str();
        if !components.iter().any(|known| known == id) {
            components.push(id.to_owned());
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use crate::Zoo;

    #[test]
    fn the_fake_model_is_listed_with_its_walks() {
        let catalogue = Zoo::with_fake().unwrap().catalogue();
        let fake = catalogue.model("fake").unwrap();
        assert!(catalogue.component("fake.llm").unwrap().kv);
        assert!(!catalogue.component("fake.text").unwrap().kv);
        assert_eq!(fake.walk("echo").unwrap().components, ["fake.text"]);
        assert_eq!(fake.walk("converse").unwrap().components, ["fake.llm"]);
        assert_eq!(fake.walk("cut").unwrap().components, ["fake.cutter"]);
        assert!(fake.ways.contains(&vec!["note".to_owned(), "recall".to_owned()]));
    }
}
