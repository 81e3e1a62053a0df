//! From a deployment to the table of node actors: which there are, on which rank, and which of them serve which model.
//! Pure.

use std::collections::BTreeMap;

use mstar_actors::{BatchLimits, NodeIx};
use mstar_config::{Deployment, Placement, WalkId, Weights};
use mstar_contract::{Precision, WeightSource};
use mstar_engines::KvBudget;
use mstar_graph::{ComponentId, Graph, ModelId, NodeName, WalkIx, WalkName};
use mstar_zoo::Zoo;

/// Every node actor of a deployment, and the models bound to them.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTable {
    /// The node actors; their place here is their address.
    pub nodes: Vec<PlacedNode>,
    /// The served models.
    pub models: Vec<PlacedModel>,
}

/// A node actor: one replica of a component on a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedNode {
    /// Its name: the component's id, with a number when there are several.
    pub name: String,
    /// What it computes.
    pub component: ComponentId,
    /// Where.
    pub rank: String,
    /// In what numbers.
    pub precision: Precision,
    /// Where its weights come from, if it has any.
    pub weights: Option<NodeWeights>,
    /// The bounds of its batches.
    pub limits: BatchLimits,
    /// Its KV pages, if it keeps any.
    pub kv: Option<KvBudget>,
    /// Its KV pages are a share of the memory there was.
    pub kv_shared: bool,
}

/// Where weights come from: equal values are fetched once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeWeights {
    /// The package.
    pub package: &'static str,
    /// The user's folder in its place.
    pub folder: Option<std::path::PathBuf>,
}

/// A served model.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedModel {
    /// Its id.
    pub id: ModelId,
    /// The walks that are served.
    pub walks: Vec<String>,
    /// Its graph's nodes, once for every placement of their walks.
    pub bindings: Vec<PlacedBinding>,
}

/// The actors that serve a graph's node in some walks.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedBinding {
    /// The graph's node.
    pub node: NodeName,
    /// Its component.
    pub component: ComponentId,
    /// The walks.
    pub walks: Vec<WalkName>,
    /// The actors: none for walks that are not served.
    pub replicas: Vec<NodeIx>,
}

/// A deployment that cannot be carried out by this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// The deployment was read with another catalogue.
    #[error("{0} is not a model or component of this build")]
    Unknown(String),
}

// --- impl NodeTable ---

impl NodeTable {
    /// Lays out a deployment.
    pub fn of(deployment: &Deployment, zoo: &Zoo) -> Result<Self, PlacementError> {
        let mut nodes = Vec::new();
        let mut replicas: Vec<Vec<NodeIx>> = Vec::new();
        for placement in &deployment.placements {
            // What no served walk visits is not started.
            let count = if placement.walks.is_empty() { 0 } else { placement.replicas };
            let first = nodes.len();
            for _ in 0..count {
                nodes.push(placed(placement, deployment, zoo)?);
            }
            replicas.push((first..nodes.len()).map(address).collect());
        }
        name_apart(&mut nodes);
        let models = deployment.served().map(|id| bind(id, deployment, zoo, &replicas)).collect::<Result<_, _>>()?;
        Ok(Self { nodes, models })
    }

    /// Shares memory out among the nodes whose KV has no budget of its own: a quarter of what is available, in equal
    /// parts. Weights and tensors need room too, and no part is larger than a full house of long talks takes.
    pub(crate) fn share_memory(&mut self, available: u64) {
        let sharing = self.nodes.iter().filter(|node| node.kv_shared).count() as u64;
        let part = (available / 4 / sharing.max(1)).clamp(LEAST_KV, MOST_KV);
        self.nodes.iter_mut().filter(|node| node.kv_shared).for_each(|node| node.kv = Some(KvBudget::Bytes(part)));
    }

    /// Returns the weights that the nodes need, each once.
    pub fn weights(&self) -> Vec<NodeWeights> {
        let mut all: Vec<NodeWeights> = self.nodes.iter().filter_map(|node| node.weights.clone()).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// Least and most bytes that a node is given for KV where the deployment names no budget.
const LEAST_KV: u64 = 256 << 20;
const MOST_KV: u64 = 2 << 30;

fn address(index: usize) -> NodeIx {
    NodeIx(u32::try_from(index).expect("invariant: a deployment has fewer than 2^32 nodes"))
}

fn placed(placement: &Placement, deployment: &Deployment, zoo: &Zoo) -> Result<PlacedNode, PlacementError> {
    let unknown = || PlacementError::Unknown(placement.component.clone());
    let component = zoo.component(&placement.component).ok_or_else(unknown)?;
    let home = zoo.home(&placement.component).ok_or_else(unknown)?;
    let settings = deployment.models.get(home.as_str()).cloned().unwrap_or_default();
    let weights = match (component.weights(), settings.weights) {
        (WeightSource::None, _) => None,
        (WeightSource::Package(package), Weights::Package) => Some(NodeWeights { package, folder: None }),
        (WeightSource::Package(package), Weights::Folder(folder)) => {
            Some(NodeWeights { package, folder: Some(folder) })
        }
    };
    Ok(PlacedNode {
        name: placement.component.clone(),
        component: component.id(),
        rank: placement.rank.clone(),
        precision: match settings.precision {
            mstar_config::Precision::F32 => Precision::F32,
            mstar_config::Precision::Bf16 => Precision::Bf16,
            mstar_config::Precision::Q8 => Precision::Q8,
            mstar_config::Precision::Q4 => Precision::Q4,
        },
        weights,
        limits: BatchLimits {
            max_rows: placement.max_batch_rows,
            max_tokens: placement.max_batch_tokens,
            wait_us: u64::try_from(placement.wait.as_micros()).unwrap_or(u64::MAX),
        },
        kv: placement.kv.map(|kv| match kv {
            mstar_config::KvBudget::Bytes(bytes) => KvBudget::Bytes(bytes),
            mstar_config::KvBudget::Pages(pages) => KvBudget::Pages(pages),
            mstar_config::KvBudget::Share => KvBudget::Bytes(LEAST_KV),
        }),
        kv_shared: placement.kv == Some(mstar_config::KvBudget::Share),
    })
}

/// Numbers nodes that share a component.
fn name_apart(nodes: &mut [PlacedNode]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes.iter() {
        *counts.entry(node.name.clone()).or_default() += 1;
    }
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    for node in nodes.iter_mut().filter(|node| counts[&node.name] > 1) {
        let number = next.entry(node.name.clone()).or_default();
        node.name = format!("{}#{number}", node.name);
        *number += 1;
    }
}

fn bind(id: &str, deployment: &Deployment, zoo: &Zoo, replicas: &[Vec<NodeIx>]) -> Result<PlacedModel, PlacementError> {
    let model = zoo.model(id).ok_or_else(|| PlacementError::Unknown(id.to_owned()))?;
    let graph = model.graph();
    let mut bindings = Vec::new();
    for (node, component) in graph.nodes() {
        let mut places: BTreeMap<Option<usize>, Vec<WalkName>> = BTreeMap::new();
        for (_, walk) in graph.walks().filter(|(ix, _)| visits(graph, *ix, node)) {
            places.entry(place_of(deployment, component, id, &walk.name)).or_default().push(walk.name.clone());
        }
        bindings.extend(places.into_iter().map(|(place, walks)| PlacedBinding {
            node: node.clone(),
            component: component.clone(),
            walks,
            replicas: place.map(|at| replicas[at].clone()).unwrap_or_default(),
        }));
    }
    let restricted = deployment.models.get(id).map(|settings| settings.walks.clone()).unwrap_or_default();
    let all = || graph.walks().map(|(_, walk)| walk.name.as_str().to_owned()).collect();
    Ok(PlacedModel { id: model.id(), walks: if restricted.is_empty() { all() } else { restricted }, bindings })
}

fn visits(graph: &Graph, walk: WalkIx, node: &NodeName) -> bool {
    graph.walk_steps(walk).any(|step| graph.step(step).node == *node)
}

/// Returns which placement holds for a component in a walk; none where the walk is not served.
fn place_of(deployment: &Deployment, component: &ComponentId, model: &str, walk: &WalkName) -> Option<usize> {
    deployment.placements.iter().position(|placement| {
        let holds = |id: &WalkId| id.model == model && *walk == id.walk.as_str();
        placement.component == component.as_str() && placement.walks.iter().any(holds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<NodeTable, PlacementError> {
        let zoo = Zoo::with_fake().unwrap();
        let deployment = Deployment::parse("test.toml", text, &zoo.catalogue()).unwrap();
        NodeTable::of(&deployment, &zoo)
    }

    fn names(table: &NodeTable) -> Vec<String> {
        table.nodes.iter().map(|node| format!("{} on {}", node.name, node.rank)).collect()
    }

    #[test]
    fn every_component_of_a_served_model_gets_a_node() {
        let table = table("[model.fake]\nprecision = 'bf16'").unwrap();
        let mut placed = names(&table);
        placed.sort();
        let expected = ["fake.cutter on cpu0", "fake.llm on cpu0", "fake.text on cpu0", "fake.vocoder on cpu0"];
        assert_eq!(placed, expected);
        assert!(table.nodes.iter().all(|node| node.precision == Precision::Bf16 && node.weights.is_none()));
        let model = &table.models[0];
        assert!(model.walks.contains(&"converse".to_owned()));
        assert!(model.bindings.iter().all(|binding| {
            let PlacedBinding { component, replicas, .. } = binding;
            replicas.len() == 1 && table.nodes[replicas[0].0 as usize].component == *component
        }));
    }

    #[test]
    fn kv_without_a_budget_gets_a_share_of_the_memory() {
        let of = |text: &str, memory: Option<u64>| {
            let mut table = table(text).unwrap();
            memory.into_iter().for_each(|memory| table.share_memory(memory));
            table.nodes.iter().filter_map(|node| node.kv).collect::<Vec<_>>()
        };
        let llm = "[model.fake]\nwalks = ['chat']\n[[placement]]\nnode = 'fake.llm'\n";
        let bytes = |bytes: u64, count: usize| vec![KvBudget::Bytes(bytes); count];
        assert_eq!(of(llm, Some(6 << 30)), bytes(6 << 28, 1));
        assert_eq!(of(&format!("{llm}replicas = 2"), Some(6 << 30)), bytes(3 << 28, 2));
        assert_eq!(of(llm, Some(1 << 40)), bytes(MOST_KV, 1));
        assert_eq!(of(llm, Some(1 << 20)), bytes(LEAST_KV, 1));
        assert_eq!(of(llm, None), bytes(LEAST_KV, 1));
        assert_eq!(of(&format!("{llm}kv_pages = 7"), Some(6 << 30)), vec![KvBudget::Pages(7)]);
    }

    #[test]
    fn replicas_are_numbered() {
        let text = "[model.fake]\n[[placement]]\nnode = 'fake.llm'\nreplicas = 2\nmax_batch_rows = 3\nwait_us = 40";
        let table = table(text).unwrap();
        assert_eq!(names(&table)[..2], ["fake.llm#0 on cpu0", "fake.llm#1 on cpu0"]);
        assert_eq!((table.nodes[0].limits.max_rows, table.nodes[0].limits.wait_us), (3, 40));
        let llm = table.models[0].bindings.iter().find(|binding| binding.node == "llm").unwrap();
        assert_eq!(llm.replicas, [NodeIx(0), NodeIx(1)]);
    }

    #[test]
    fn what_no_served_walk_visits_is_not_started() {
        let table = table("[model.fake]\nwalks = ['echo']").unwrap();
        assert_eq!(names(&table), ["fake.text on cpu0"]);
        let bindings = &table.models[0].bindings;
        let (idle, used): (Vec<_>, Vec<_>) = bindings.iter().partition(|binding| binding.replicas.is_empty());
        assert!(idle.iter().all(|binding| !binding.walks.contains(&"echo".into())));
        assert_eq!(used.iter().map(|binding| &binding.walks[..]).collect::<Vec<_>>(), [[WalkName::from("echo")]]);
    }

    #[test]
    fn walks_of_one_model_are_placed_apart() {
        let text = "[model.fake]\n[[rank]]\nname = 'a'\n[[rank]]\nname = 'b'\n\
            [[placement]]\nnode = 'fake.llm'\nrank = 'b'\nwalks = ['fake.chat']\nreplicas = 2\n\
            [[placement]]\nnode = 'fake.llm'\nrank = 'a'";
        let table = table(text).unwrap();
        assert_eq!(names(&table)[..3], ["fake.llm#0 on b", "fake.llm#1 on b", "fake.llm#2 on a"]);
        let llm = table.models[0].bindings.iter().filter(|binding| binding.node == "llm");
        let llm: Vec<_> = llm.map(|binding| (binding.walks[0].as_str(), &binding.replicas[..])).collect();
        assert_eq!(llm, [("chat", &[NodeIx(0), NodeIx(1)][..]), ("converse", &[NodeIx(2)][..])]);
    }
}
