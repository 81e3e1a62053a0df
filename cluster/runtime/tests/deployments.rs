//! Deployment files against the models of this build.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use mstar_config::Deployment;
use mstar_runtime::NodeTable;
use mstar_zoo::Zoo;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect();
    assert!(!files.is_empty());
    files
}

/// Returns what `mstar check` complains about.
fn complaints(text: &str) -> Vec<String> {
    let parsed = Deployment::parse("a.toml", text, &Zoo::standard().unwrap().catalogue());
    let problems = parsed.err().map(|report| report.problems).unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_deployments_of_the_project_fit_the_models_of_this_build() {
    let zoo = Zoo::standard().unwrap();
    for path in [files("deployments"), files("tests/fixtures/config/good")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let deployment = Deployment::parse(&name, &text, &zoo.catalogue()).unwrap_or_else(|report| panic!("{report}"));
        NodeTable::of(&deployment, &zoo).unwrap();
    }
}

#[test]
fn walks_that_lack_those_that_follow_are_refused_with_their_place() {
    let check = |walks: &str, expected: &[&str]| {
        assert_eq!(complaints(&format!("[model.voice]\nwalks = [{walks}]\n")), expected, "{walks}");
    };
    check(
        "'listen'",
        &["2:10: model.voice.walks[0]: no request can take `listen` without walks that are not served\n    \
           allowed: also chat; or also converse, read, say, sound"],
    );
    check(
        "'chat', 'speak'",
        &["2:18: model.voice.walks[1]: no request can take `speak` without walks that are not served\n    \
           allowed: also say, sound"],
    );
    check("'chat'", &[]);
    check("'listen', 'chat', 'transcribe'", &[]);
    check("'speak', 'say', 'sound'", &[]);
    check("'listen', 'converse', 'read', 'say', 'sound'", &[]);
}

#[test]
fn walks_of_the_voice_assistant_may_be_placed_apart() {
    let zoo = Zoo::standard().unwrap();
    let text = "[[rank]]\nname = 'cpu0'\n[[rank]]\nname = 'cpu1'\n[model.voice]\n[model.smollm2]\n\
        [[placement]]\nnode = 'smollm2.llm'\nrank = 'cpu1'\nwalks = ['voice.converse']\n";
    let table = NodeTable::of(&Deployment::parse("a.toml", text, &zoo.catalogue()).unwrap(), &zoo).unwrap();
    let rank = |model: &str, walk: &str| {
        let model = table.models.iter().find(|placed| placed.id == model).unwrap();
        let holds = model.bindings.iter().find(|b| b.node == "llm" && b.walks.contains(&walk.into())).unwrap();
        table.nodes[holds.replicas[0].0 as usize].rank.as_str()
    };
    assert_eq!([rank("voice", "converse"), rank("voice", "chat"), rank("smollm2", "chat")], ["cpu1", "cpu0", "cpu0"]);
}
