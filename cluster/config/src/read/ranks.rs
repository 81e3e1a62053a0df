//! `[[rank]]`.

use std::collections::{BTreeMap, BTreeSet};

use crate::fields::{At, Complaint, Fields};
use crate::{Device, Rank};

/// Highest core number and most threads that are believed.
const CORES: i64 = 4096;

pub(super) fn read(root: &mut Fields<'_>) -> Vec<Rank> {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut ranks = Vec::new();
    for mut fields in root.tables("rank") {
        let Some(name) = fields.text("name") else {
            fields.missing("name", "what placements call this rank");
            rank(fields, "");
            continue;
        };
        let line = fields.source().line(&name.span);
        if let Some(first) = lines.insert(name.value.to_owned(), line) {
            fields.complain(
                &name.span,
                "name",
                Complaint::new(format!("`{}` is the name of the rank in line {first}", name.value)),
            );
        }
        let (source, place, path) = (fields.source(), fields.place("threads"), fields.path("threads"));
        let rank = rank(fields, name.value);
        if let Some(complaint) = ranks.iter().find_map(|other| at_odds(&rank, other)) {
            source.complain(&place, path, complaint);
        }
        ranks.push(rank);
    }
    if ranks.is_empty() {
        ranks.push(Rank::default());
    }
    ranks
}

/// Complains about two ranks that would take turns on one pool of threads, and disagree on how many there are.
fn at_odds(rank: &Rank, other: &Rank) -> Option<Complaint> {
    let cores = |rank: &Rank| rank.cores.iter().copied().collect::<BTreeSet<usize>>();
    let threads = |rank: &Rank| rank.threads.unwrap_or(rank.cores.len());
    if rank.cores.is_empty() || cores(rank) != cores(other) || threads(rank) == threads(other) {
        return None;
    }
    let (name, ours, theirs) = (&other.name, threads(rank), threads(other));
    let what = format!("`{name}` takes turns on the same cores with {theirs} threads, which cannot be {ours} here");
    Some(Complaint::new(what).allowed(format!("{theirs}; or other cores")))
}

fn rank(mut fields: Fields<'_>, name: &str) -> Rank {
    let device = fields.text("device").and_then(|at| device(&fields, &at)).unwrap_or(Device::Cpu);
    let threads: Option<usize> = fields.whole("threads", 1..=CORES);
    let core = |value: &toml_edit::Value| {
        value.as_integer().filter(|core| (0..CORES).contains(core)).map(|core| core as usize)
    };
    let cores = fields.list("cores", core, &format!("core numbers below {CORES}")).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for at in cores.iter().filter(|at| !seen.insert(at.value)) {
        fields.complain(&at.span, "cores", Complaint::new(format!("core {} is listed twice", at.value)));
    }
    let span = fields.place("threads");
    if threads.is_some_and(|threads| !cores.is_empty() && threads > cores.len()) {
        let what = format!("{} threads do not fit on {} cores", threads.unwrap_or_default(), cores.len());
        fields.complain(&span, "threads", Complaint::new(what));
    }
    if device != Device::Cpu && (threads.is_some() || !cores.is_empty()) {
        fields.complain(&span, "threads", Complaint::new(format!("threads and cores mean nothing on {device}")));
    }
    fields.finish();
    Rank { name: name.to_owned(), device, threads, cores: cores.into_iter().map(|at| at.value).collect() }
}

fn device(fields: &Fields<'_>, at: &At<&str>) -> Option<Device> {
    let found = match at.value.strip_prefix("cuda:") {
        Some(index) => index.parse().ok().map(Device::Cuda),
        None => (at.value == "cpu").then_some(Device::Cpu),
    };
    if found.is_none() {
        let complaint = Complaint::unknown(format!("`{}` is no device", at.value), at.value, ["cpu", "cuda:0"]);
        fields.complain(&at.span, "device", complaint.allowed("cpu, or cuda:N with the GPU's index"));
    }
    found
}
