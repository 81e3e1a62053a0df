//! Which walks of a model must share a placement, because one finds at a node what another left there. Pure.

use std::collections::BTreeSet;

use mstar_config::Bond;
use mstar_contract::{Component, KvUse, Model, Recovery};
use mstar_graph::{ComponentId, Graph, NodeName, WalkIx, WalkName};

use crate::Zoo;

/// Returns what ties a model's walks to one placement.
pub(crate) fn bonds(model: &dyn Model, zoo: &Zoo) -> Vec<Bond> {
    let graph = model.graph();
    let mut bonds: BTreeSet<Bond> = streams(graph).collect();
    for way in model.ways() {
        for (node, id) in graph.nodes() {
            let walks = visiting(graph, &way, node);
            let Some(component) = zoo.component(id.as_str()).filter(|_| walks.len() > 1) else { continue };
            if let Some(left) = left_behind(graph, &walks, node, &**component) {
                bonds.insert(bond(id, walks.iter().map(|walk| &graph.walk(*walk).name), left));
            }
        }
    }
    bonds.into_iter().collect()
}

/// The items of a stream lie at the node that takes them, whichever walk it takes them in.
fn streams(graph: &Graph) -> impl Iterator<Item = Bond> {
    graph.streams().filter_map(|(ix, stream)| {
        let walks: BTreeSet<WalkIx> = graph.consumers(ix).map(|step| graph.step(step).walk).collect();
        let consumer = graph.step(graph.consumers(ix).next()?);
        let left = format!("they take the same stream, `{}`", stream.name);
        (walks.len() > 1).then(|| bond(&consumer.component, walks.iter().map(|walk| &graph.walk(*walk).name), left))
    })
}

/// Returns the walks of a way that visit a node.
fn visiting(graph: &Graph, way: &[WalkName], node: &NodeName) -> Vec<WalkIx> {
    let walks = way.iter().filter_map(|walk| graph.find_walk(walk.as_str()));
    walks.filter(|walk| graph.walk_steps(*walk).any(|step| graph.step(step).node == *node)).collect()
}

/// Says what one of these walks may find at a node that another left there, if so.
fn left_behind(graph: &Graph, walks: &[WalkIx], node: &NodeName, component: &dyn Component) -> Option<String> {
    match component.recovery() {
        Recovery::Redo => None,
        Recovery::Restart => Some(format!("node `{node}` keeps state of a request from one walk to the next")),
        Recovery::Replay => {
            let walk = walks.iter().find(|walk| goes_on(graph, **walk, node, component))?;
            let walk = &graph.walk(*walk).name;
            Some(format!("walk `{walk}` goes on with the KV sequence that a request has at node `{node}`"))
        }
    }
}

/// Whether a walk's first step at a node goes on with a sequence that another walk began.
fn goes_on(graph: &Graph, walk: WalkIx, node: &NodeName, component: &dyn Component) -> bool {
    let first = graph.walk_steps(walk).map(|step| graph.step(step)).find(|step| step.node == *node);
    let ops = component.ops();
    let decl = first.and_then(|step| ops.iter().find(|decl| decl.name == step.op));
    decl.is_some_and(|decl| decl.kv != Some(KvUse::Begin))
}

fn bond<'a>(component: &ComponentId, walks: impl Iterator<Item = &'a WalkName>, left: String) -> Bond {
    let walks = walks.map(|walk| walk.as_str().to_owned()).collect();
    Bond { component: component.as_str().to_owned(), walks, left }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mstar_contract::{Invalid, ModelCard, Plan, Request};
    use mstar_graph::{ChunkPolicy, GraphBuilder, Modality, ModelId, Stream, step};

    use super::*;
    use crate::Entry;

    /// A model over the scripted components that goes these ways.
    struct Diary {
        graph: Arc<Graph>,
        ways: Vec<Vec<&'static str>>,
    }

    impl Diary {
        fn new(ways: &[&[&'static str]]) -> Self {
            let mut graph = GraphBuilder::new();
            let prefill = || step("llm", "prefill").input("prompt").client("text", Modality::Text);
            let pieces = || Stream::new("pieces", "other", "cut", ChunkPolicy::Fixed(1));
            let cut = || step("cutter", "cut").input("text").client("item", Modality::Text);
            graph
                .node("llm", "fake.llm")
                .node("text", "fake.text")
                .node("cutter", "fake.cutter")
                .node("vocoder", "fake.vocoder")
                .partition("main")
                .partition("other")
                .partition("cut")
                .stream(pieces())
                .walk("main", "begin", prefill())
                .walk("main", "anew", prefill())
                .walk("main", "more", step("llm", "decode").input("token").client("text", Modality::Text))
                .walk("main", "upper", step("text", "upper").input("in").client("out", Modality::Text))
                .walk("main", "lower", step("text", "echo").input("in").client("out", Modality::Text))
                .walk("main", "cut", cut())
                .walk("main", "again", cut())
                .walk("other", "feed", step("text", "split").input("in").stream_out("item", "pieces"))
                .walk("cut", "speak", step("vocoder", "speak").stream_in("items", "pieces"))
                .walk("cut", "sing", step("vocoder", "speak").stream_in("items", "pieces"));
            Self { graph: graph.build().unwrap(), ways: ways.iter().map(|way| way.to_vec()).collect() }
        }
    }

    impl Model for Diary {
        fn id(&self) -> ModelId {
            "diary".into()
        }
        fn graph(&self) -> &Arc<Graph> {
            &self.graph
        }
        fn card(&self) -> ModelCard {
            ModelCard::default()
        }
        fn ways(&self) -> Vec<Vec<WalkName>> {
            self.ways.iter().map(|way| way.iter().map(|&walk| walk.into()).collect()).collect()
        }
        fn plan(&self, _: &Arc<Request>) -> Result<Box<dyn Plan>, Invalid> {
            Err(Invalid::new("model", "it serves nothing"))
        }
    }

    /// Returns component and walks of every bond but that of the stream, which is always there.
    fn told(ways: &[&[&'static str]]) -> Vec<String> {
        let zoo = Zoo::with_fake().unwrap();
        let bonds = bonds(&Diary::new(ways), &zoo);
        let (streams, others): (Vec<_>, Vec<_>) = bonds.into_iter().partition(|bond| bond.left.contains("`pieces`"));
        assert_eq!(streams.len(), 1);
        assert_eq!(
            (&*streams[0].component, &streams[0].walks[..]),
            ("fake.vocoder", &["speak", "sing"].map(String::from)[..])
        );
        others.iter().map(|bond| format!("{}: {}: {}", bond.component, bond.walks.join(", "), bond.left)).collect()
    }

    #[test]
    fn walks_of_one_way_share_what_they_leave_behind() {
        let sequence =
            "fake.llm: begin, more: walk `more` goes on with the KV sequence that a request has at node `llm`";
        assert_eq!(told(&[&["begin", "more"]]), [sequence]);
        let state = "fake.cutter: cut, again: node `cutter` keeps state of a request from one walk to the next";
        assert_eq!(told(&[&["cut", "again"]]), [state]);
    }

    #[test]
    fn walks_that_leave_nothing_to_each_other_are_free() {
        assert!(told(&[&["begin", "anew"]]).is_empty(), "each begins a sequence of its own");
        assert!(told(&[&["upper", "lower"]]).is_empty(), "nothing is kept");
        assert!(told(&[&["begin"], &["more"], &["cut"], &["again"]]).is_empty(), "no request takes both");
    }

    #[test]
    fn the_models_of_this_build_may_be_placed_by_walk() {
        for entry in Zoo::with_fake().unwrap().entries() {
            let bonds = bonds(&*entry.model, &Zoo::with_fake().unwrap());
            assert!(bonds.is_empty(), "{}: {bonds:?}", entry.model.id());
        }
    }

    #[test]
    fn a_walk_off_all_ways_is_a_mistake_of_the_model() {
        let fake = || mstar_engines::fake::FakeComponent::all(&Default::default());
        let error = Zoo::new(vec![Entry::new(Diary::new(&[&["begin"]]), fake())]).unwrap_err().to_string();
        assert_eq!(error, "model diary: walk anew lies on no way, or is not in the graph");
    }
}
