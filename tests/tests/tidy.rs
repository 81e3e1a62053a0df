//! The rules of the house that no compiler checks: sizes, rows of crates, module docs, links, names of spans.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mstar_tests::tree::{Crate, crates, read, root, rust_files};

/// Most lines of a file, tests included.
const MAX_LINES: usize = 500;

/// The row of each crate, from the ground up. A crate uses only crates of lower rows.
const ROWS: [(&str, u8); 21] = [
    ("mstar-graph", 1),
    ("mstar-supervisor", 1),
    ("mstar-kernels", 1),
    ("mstar-weights", 1),
    ("mstar-media", 1),
    ("mstar-config", 1),
    ("mstar-contract", 2),
    ("mstar-shim", 2),
    ("mstar-blocks", 3),
    ("mstar-actors", 4),
    ("mstar-engines", 4),
    ("mstar-smollm2", 4),
    ("mstar-whisper", 4),
    ("mstar-hibari", 4),
    ("mstar-voice", 4),
    ("mstar-zoo", 5),
    ("mstar-gateway", 5),
    ("mstar-runtime", 6),
    ("mstar-scenarios", 7),
    ("mstar-serve", 8),
    ("mstar-tests", 9),
];

/// Outside crates that may appear in few manifests only, and where.
const WALLS: [(&str, &[&str]); 3] = [
    ("ractor", &["mstar-actors", "mstar-supervisor", "mstar-runtime"]),
    ("cudarc", &["mstar-kernels"]),
    ("axum", &["mstar-gateway", "mstar-runtime", "mstar-serve"]),
];

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn files_are_short() {
    let long = rust_files().into_iter().filter_map(|path| {
        let lines = read(&path).lines().count();
        (lines > MAX_LINES).then(|| format!("{}: {lines} lines", path.display()))
    });
    none("files over 500 lines (cut by idea)", long.collect());
}

#[test]
fn every_file_says_what_it_is() {
    let silent = rust_files().into_iter().filter(|path| !read(path).starts_with("//!"));
    none("files without module docs", silent.map(|path| path.display().to_string()).collect());
}

#[test]
fn crates_use_only_rows_below_their_own() {
    let rows: BTreeMap<&str, u8> = ROWS.into_iter().collect();
    let all = crates();
    let mut wrong: Vec<String> =
        all.keys().filter(|n| !rows.contains_key(n.as_str())).map(|n| format!("{n} has no row")).collect();
    for Crate { name, uses, .. } in all.values() {
        for used in uses {
            if rows.get(used.as_str()) >= rows.get(name.as_str()) {
                wrong.push(format!("{name} uses {used}, which is not below it"));
            }
        }
    }
    none("arrows that point up or sideways", wrong);
}

#[test]
fn walled_crates_stay_behind_their_walls() {
    let mut wrong = Vec::new();
    for member in crates().values() {
        for (name, allowed) in WALLS {
            if member.dependencies.iter().any(|d| d == name) && !allowed.contains(&member.name.as_str()) {
                wrong.push(format!("{} depends on {name}", member.name));
            }
        }
    }
    none("outside crates in front of their walls", wrong);
}

/// Files outside `kernels` that hold one `unsafe` block each, with its reason beside it.
const UNSAFE: [&str; 1] = ["nodes/weights/src/mapped.rs"];

#[test]
fn unsafe_stays_in_kernels() {
    // Spelt apart, so that this file does not find itself.
    let marks = [["unsafe", " {"], ["unsafe", " fn"], ["unsafe", " impl"]].map(|m| m.concat());
    let outside = rust_files().into_iter().filter(|path| {
        let text = read(path);
        let exempt = path.starts_with("kernels") || UNSAFE.iter().any(|known| path == Path::new(known));
        !exempt && marks.iter().any(|mark| text.contains(mark.as_str()))
    });
    none("unsafe outside kernels", outside.map(|path| path.display().to_string()).collect());
}

#[test]
fn nothing_is_left_unfinished() {
    // Spelt apart, so that this file does not find itself.
    let marks = [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["should_", "panic"]].map(|m| m.concat());
    let mut found = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        found.extend(marks.iter().filter(|m| text.contains(m.as_str())).map(|m| format!("{}: {m}", path.display())));
    }
    none("unfinished marks", found);
}

#[test]
fn links_of_the_documents_exist() {
    let mut dead = Vec::new();
    for name in ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"] {
        let text = read(Path::new(name));
        assert!(!text.is_empty(), "{name} is missing");
        for target in links(&text) {
            if !root().join(&target).exists() {
                dead.push(format!("{name}: {}", target.display()));
            }
        }
    }
    none("dead links", dead);
}

/// Returns the targets of relative links, without their anchors.
fn links(text: &str) -> Vec<PathBuf> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|t| !t.contains("://") && !t.starts_with('#'));
    relative.filter_map(|t| t.split('#').next()).map(PathBuf::from).collect()
}

#[test]
fn invariants_name_tests_that_exist() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let sources: String = rust_files().iter().map(|path| read(path)).collect();
    let names = text.split("test: `").skip(1).filter_map(|rest| rest.split('`').next());
    let names: Vec<&str> = names.collect();
    assert!(names.len() >= 10, "ARCHITECTURE.md names only {} tests for its invariants", names.len());
    let missing = names.into_iter().filter(|name| !sources.contains(&format!("fn {name}(")));
    none("tests that ARCHITECTURE.md names and nobody wrote", missing.map(str::to_owned).collect());
}

#[test]
fn spans_are_documented() {
    let text = read(Path::new("ARCHITECTURE.md"));
    let source = read(Path::new("actors/src/trace.rs"));
    let spans = source.split("pub mod key").next().unwrap_or_default();
    let names: Vec<&str> = spans
        .lines()
        .filter(|line| line.starts_with("pub const ") && !line.contains("TARGET"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(!names.is_empty(), "actors/src/trace.rs declares no names of spans");
    let missing = names.into_iter().filter(|name| !text.contains(&format!("`{name}`")));
    none("spans that ARCHITECTURE.md does not tell of", missing.map(str::to_owned).collect());
}
