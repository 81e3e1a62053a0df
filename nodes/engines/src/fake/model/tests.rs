//! The fake model's graph fits its components, and its plans start.

use std::collections::{BTreeMap, BTreeSet};

use mstar_contract::{Component, OpDecl, Sampling};
use mstar_graph::{Cursor, OpPorts};

use super::*;
use crate::fake::{FakeComponent, FakeSettings};
use crate::testing::request;

fn with(task: Task, outputs: &[Modality], options: &[(&str, serde_json::Value)]) -> Arc<Request> {
    let mut request = Arc::unwrap_or_clone(request("hello there", Sampling::default()));
    request.task = task;
    request.outputs = outputs.iter().copied().collect::<BTreeSet<_>>();
    request.options = options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<BTreeMap<_, _>>();
    Arc::new(request)
}

#[test]
fn the_graph_fits_its_components() {
    let model = FakeModel::new().unwrap();
    let components = FakeComponent::all(&FakeSettings::default());
    let ports = |op: OpDecl| OpPorts { inputs: op.inputs, outputs: op.outputs, signals: vec![] };
    let fits = model.graph().check_ports(|id, op| {
        let component = components.iter().find(|component: &&Arc<dyn Component>| component.id() == *id)?;
        component.ops().into_iter().find(|decl| decl.name == *op).map(ports)
    });
    fits.unwrap_or_else(|problems| panic!("{problems}"));
}

#[test]
fn every_walk_that_a_plan_names_can_start() {
    let model = FakeModel::new().unwrap();
    for name in WALKS {
        let plan = model.plan(&with(Task::Generate, &[], &[("walk", name.into())])).unwrap();
        let (mut walks, mut taken) = (plan.begin(), Vec::new());
        walks.extend(walks.clone().iter().filter_map(|w| plan.next(&w.partition, &w.walk, &Kept::new())));
        for walk in walks {
            let ix = model.graph().find_walk(walk.walk.as_str()).unwrap();
            assert_eq!(model.graph().walk(ix).partition, walk.partition);
            let kept = |_: &mstar_graph::KeptName| Some(Value::text("kept"));
            taken.push(walk.walk.clone());
            Cursor::start(model.graph(), ix, walk.inputs, &kept, &|_| None).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let told: Vec<WalkName> = plan.begin().into_iter().map(|next| next.walk).chain(plan.follows()).collect();
        assert_eq!(told, taken);
        assert!(model.ways().contains(&taken), "{taken:?}");
    }
}

#[test]
fn task_and_wanted_outputs_choose_the_walk() {
    let chosen = |task, outputs: &[Modality]| chosen(&with(task, outputs, &[])).unwrap();
    use Modality::{Audio, Text};
    assert_eq!(chosen(Task::Generate, &[Text]), "chat");
    assert_eq!(chosen(Task::Generate, &[Audio]), "speak");
    assert_eq!(chosen(Task::Generate, &[Text, Audio]), "converse");
    assert_eq!(chosen(Task::Chat, &[Text]), "chat");
    assert_eq!(chosen(Task::Chat, &[Audio]), "converse");
    assert_eq!(chosen(Task::Speak, &[]), "speak");
}

#[test]
fn unknown_options_and_walks_are_refused_by_name() {
    let model = FakeModel::new().unwrap();
    let refused = |key: &str| {
        let request = with(Task::Generate, &[], &[(key, "nowhere".into())]);
        model.plan(&request).err().map(|invalid| invalid.field)
    };
    assert_eq!(refused("walk").as_deref(), Some("model_kwargs.walk"));
    assert_eq!(refused("wok").as_deref(), Some("model_kwargs.wok"));
    assert_eq!(refused("voice"), None);
}
