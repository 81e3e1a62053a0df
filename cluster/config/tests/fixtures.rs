//! Every fixture and deployment of the project against what is expected of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use mstar_config::{Bond, Catalogue, Component, Deployment, Model, PageBytes, Walk};

fn component(id: &str) -> Component {
    let page = (id == "smollm2.llm").then_some(PageBytes { f32: 737_280, bf16: 368_640 });
    let kv = matches!(id, "smollm2.llm" | "whisper.decoder" | "diary.llm");
    Component { id: id.to_owned(), gpu: id.ends_with(".llm"), kv, page }
}

fn model(id: &str, components: &[&str], walks: &[(&str, &[&str])]) -> Model {
    let walk = |(name, nodes): &(&str, &[&str])| Walk {
        name: (*name).to_owned(),
        components: nodes.iter().map(|node| (*node).to_owned()).collect(),
    };
    Model {
        id: id.to_owned(),
        components: components.iter().copied().map(component).collect(),
        walks: walks.iter().map(walk).collect(),
        ..Model::default()
    }
}

fn ways(ways: &[&[&str]]) -> Vec<Vec<String>> {
    ways.iter().map(|way| way.iter().map(|&walk| walk.to_owned()).collect()).collect()
}

/// The models of the project, as its deployments name them, and `diary`, whose walk `more` goes on where `begin` stopped.
fn catalogue() -> Catalogue {
    let llm = ["smollm2.prompt", "smollm2.llm"];
    let hear = ["whisper.media", "whisper.features", "whisper.encoder", "whisper.decoder", "whisper.segments"];
    let (cut, say, render) = (["hibari.cutter"], ["hibari.acoustic"], ["hibari.vocoder"]);
    let hibari = Model {
        ways: ways(&[&["read", "speech", "sound"]]),
        ..model("hibari", &[cut, say, render].concat(), &[("read", &cut), ("speech", &say), ("sound", &render)])
    };
    let voice: [(&str, &[&str]); 8] = [
        ("chat", &llm),
        ("converse", &llm),
        ("transcribe", &hear),
        ("listen", &hear),
        ("speak", &cut),
        ("read", &cut),
        ("say", &say),
        ("sound", &render),
    ];
    let voice_ways: [&[&str]; 6] = [
        &["chat"],
        &["listen", "chat"],
        &["converse", "read", "say", "sound"],
        &["listen", "converse", "read", "say", "sound"],
        &["speak", "say", "sound"],
        &["transcribe"],
    ];
    let bond = Bond {
        component: "diary.llm".to_owned(),
        walks: ["begin", "more"].map(str::to_owned).into(),
        left: "walk `more` goes on with a sequence".to_owned(),
    };
    let diary = model("diary", &["diary.llm"], &[("begin", &["diary.llm"]), ("more", &["diary.llm"])]);
    Catalogue {
        models: vec![
            model("smollm2", &llm, &[("chat", &llm)]),
            model("whisper", &hear, &[("transcribe", &hear)]),
            hibari,
            Model { ways: ways(&voice_ways), ..model("voice", &[], &voice) },
            Model { ways: ways(&[&["begin", "more"]]), bonds: vec![bond], ..diary },
        ],
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all TOML files of a folder, sorted.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "no fixtures in {folder}");
    files
}

fn parse(path: &Path) -> Result<Deployment, String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    Deployment::parse(name, &fs::read_to_string(path).unwrap(), &catalogue()).map_err(|report| report.to_string())
}

#[test]
fn good_files_become_what_they_say() {
    for path in files("tests/fixtures/config/good") {
        let deployment = parse(&path).unwrap();
        expect_file![path.with_extension("parsed")].assert_eq(&format!("{deployment:#?}\n"));
    }
}

#[test]
fn bad_files_are_refused_with_all_their_problems() {
    for path in files("tests/fixtures/config/bad") {
        let report = parse(&path).expect_err("a bad file");
        expect_file![path.with_extension("report")].assert_eq(&format!("{report}\n"));
    }
}

#[test]
fn every_deployment_of_the_project_is_good() {
    for path in files("deployments") {
        if let Err(report) = parse(&path) {
            panic!("{report}");
        }
    }
}

#[test]
fn defaults_shown_in_comments_are_the_defaults() {
    let shown = fs::read_to_string(root().join("deployments/voice.toml")).unwrap();
    let is_key = |key: &str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let setting = |line: &str| {
        let rest = line.strip_prefix("# ").filter(|rest| rest.split_once(" = ").is_some_and(|(key, _)| is_key(key)))?;
        Some(rest.to_owned())
    };
    let skipped = ["api_keys = ", "endpoint = ", "dir = ", "cores = ", "kv_budget = "]; // examples: unset is the default
    let uncomment = |line: &str| match setting(line) {
        Some(rest) if !skipped.iter().any(|key| rest.starts_with(key)) => rest,
        _ => line.to_owned(),
    };
    let spelt_out: String = shown.lines().map(|line| uncomment(line) + "\n").collect();
    assert!(spelt_out.matches(" = ").count() > 20 && spelt_out != shown);
    let parse =
        |text: &str| Deployment::parse("voice.toml", text, &catalogue()).unwrap_or_else(|report| panic!("{report}"));
    let (mut explicit, implicit) = (parse(&spelt_out), parse(&shown));
    assert_eq!(explicit.tracing.service_name.take().as_deref(), Some("mstar"), "the default is the environment's");
    assert_eq!(explicit, implicit);
}

#[test]
fn every_walk_finds_each_component_in_exactly_one_place() {
    let catalogue = catalogue();
    let deployment = parse(&root().join("tests/fixtures/config/good/everything.toml")).unwrap();
    for walk in &catalogue.model("voice").unwrap().walks {
        for component in &walk.components {
            let holds = deployment.placements.iter().filter(|placement| {
                placement.component == *component
                    && placement.walks.iter().any(|id| id.model == "voice" && id.walk == walk.name)
            });
            let served = deployment.models["voice"].walks.contains(&walk.name);
            assert_eq!(holds.count(), usize::from(served), "{component} in {}", walk.name);
            assert_eq!(deployment.placement(component, "voice", &walk.name).is_some(), served);
        }
    }
    let rank = |walk| deployment.placement("smollm2.llm", "voice", walk).unwrap().rank.as_str();
    assert_eq!((rank("converse"), rank("chat")), ("gpu", "cpu1"));
}

#[test]
fn damaged_files_are_reported_inside_their_lines_and_never_panic() {
    let catalogue = catalogue();
    for path in [files("deployments"), files("tests/fixtures/config/good")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        let mut refused = 0;
        for (at, found) in text.char_indices().step_by(5) {
            let replacement = ['"', '=', 'x', '9', '[', '\u{fc}'][at % 6];
            let damaged = [&text[..at], &replacement.to_string(), &text[at + found.len_utf8()..]].concat();
            if let Err(report) = Deployment::parse("damaged.toml", &damaged, &catalogue) {
                refused += 1;
                let lines = damaged.lines().count();
                assert!(!report.problems.is_empty());
                assert!(report.problems.iter().all(|p| (1..=lines + 1).contains(&p.line) && p.column > 0), "{report}");
            }
        }
        assert!(refused > 0, "{}", path.display());
    }
}
