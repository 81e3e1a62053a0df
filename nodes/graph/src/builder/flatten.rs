//! Takes a walk's section tree apart: steps in the order of the declaration, each with its scope and
//! its place, and one scope per loop.

use std::ops::Range;

use crate::names::{LoopName, Port, StepName};
use crate::problems::{ProblemKind, Problems};
use crate::section::{Bound, Ends, LoopSection, Section, Step, Wire};

/// A walk without its tree.
#[derive(Debug, Default)]
pub(super) struct FlatWalk {
    /// The walk's own scope, then one per loop.
    pub(super) scopes: Vec<FlatScope>,
    pub(super) steps: Vec<FlatStep>,
}

/// The walk itself or a loop's body.
#[derive(Debug)]
pub(super) struct FlatScope {
    pub(super) parent: usize,
    pub(super) depth: u32,
    pub(super) members: u32,
    pub(super) steps: Range<usize>,
    pub(super) inner: Range<usize>,
    pub(super) repeats: Option<FlatLoop>,
    pub(super) path: String,
}

/// What a loop's scope adds.
#[derive(Debug)]
pub(super) struct FlatLoop {
    pub(super) name: LoopName,
    pub(super) bound: Bound,
    pub(super) ends: Ends,
    pub(super) gather: Vec<(StepName, Port)>,
}

/// A step with its place.
#[derive(Debug)]
pub(super) struct FlatStep {
    pub(super) step: Step,
    pub(super) scope: usize,
    pub(super) path: String,
    place: Vec<Place>,
}

/// A position among the members of a section.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    InOrder(usize),
    Beside(usize),
}

/// How two steps of a walk stand to each other.
#[derive(Debug, PartialEq)]
pub(super) enum Standing {
    Before,
    NotBefore,
    Beside,
}

/// Where the flattening is.
#[derive(Clone)]
struct At {
    scope: usize,
    path: String,
    place: Vec<Place>,
}

// --- impl FlatWalk ---

impl FlatWalk {
    /// Flattens a walk's section.
    pub(super) fn of(section: &Section, path: &str, problems: &mut Problems) -> Self {
        let mut flat = FlatWalk::default();
        flat.scopes.push(FlatScope {
            parent: 0,
            depth: 0,
            members: 0,
            steps: 0..0,
            inner: 1..1,
            repeats: None,
            path: path.to_owned(),
        });
        flat.section(section, &At { scope: 0, path: path.to_owned(), place: Vec::new() }, problems);
        flat.close_scope(0);
        flat.check_names(problems);
        flat
    }

    /// Returns the scopes of the loops around (and at) a scope, from the outside in.
    pub(super) fn loops_around(&self, scope: usize) -> impl Iterator<Item = usize> + use<> {
        let mut around = Vec::new();
        let mut scope = scope;
        while scope > 0 {
            around.push(scope);
            scope = self.scopes[scope].parent;
        }
        around.into_iter().rev()
    }

    /// Returns the innermost scope that holds both.
    pub(super) fn common_scope(&self, a: usize, b: usize) -> usize {
        let (mut a, mut b) = (a, b);
        while a != b {
            if self.scopes[a].depth >= self.scopes[b].depth {
                a = self.scopes[a].parent;
            } else {
                b = self.scopes[b].parent;
            }
        }
        a
    }

    /// Returns how one step stands to another.
    pub(super) fn standing(&self, a: usize, b: usize) -> Standing {
        let pairs = self.steps[a].place.iter().zip(&self.steps[b].place);
        for (a, b) in pairs {
            match (a, b) {
                (Place::InOrder(a), Place::InOrder(b)) if a < b => return Standing::Before,
                (Place::InOrder(a), Place::InOrder(b)) if a > b => return Standing::NotBefore,
                (Place::Beside(a), Place::Beside(b)) if a != b => return Standing::Beside,
                _ => {}
            }
        }
        Standing::NotBefore
    }

    fn section(&mut self, section: &Section, at: &At, problems: &mut Problems) {
        match section {
            Section::Step(step) => {
                self.scopes[at.scope].members += 1;
                self.steps.push(FlatStep {
                    step: step.clone(),
                    scope: at.scope,
                    path: format!("{} / step `{}`", at.path, step.name),
                    place: at.place.clone(),
                });
            }
            Section::Sequential(members) => self.members(members, at, Place::InOrder, problems),
            Section::Parallel(members) => self.members(members, at, Place::Beside, problems),
            Section::Loop(section) => self.repeated(section, at, problems),
            Section::Wired { body, wires } => {
                let first = self.steps.len();
                self.section(body, at, problems);
                for wire in wires {
                    apply(wire, &mut self.steps[first..], &at.path, problems);
                }
            }
        }
    }

    fn members(&mut self, members: &[Section], at: &At, place: fn(usize) -> Place, problems: &mut Problems) {
        if members.is_empty() {
            problems.add(ProblemKind::Empty, &at.path, "a section without members");
        }
        for (index, member) in members.iter().enumerate() {
            let mut at = at.clone();
            at.place.push(place(index));
            self.section(member, &at, problems);
        }
    }

    fn repeated(&mut self, section: &LoopSection, at: &At, problems: &mut Problems) {
        let scope = self.scopes.len();
        let path = format!("{} / loop `{}`", at.path, section.name);
        match &section.bound {
            Bound::Fixed(0) => problems.add(ProblemKind::Bound, &path, "a loop of zero iterations"),
            Bound::FromRequest { name, limit: 0 } => {
                problems.add(ProblemKind::Bound, &path, format!("`{name}` is limited to zero iterations"));
            }
            _ => {}
        }
        self.scopes[at.scope].members += 1;
        self.scopes.push(FlatScope {
            parent: at.scope,
            depth: self.scopes[at.scope].depth + 1,
            members: 0,
            steps: self.steps.len()..self.steps.len(),
            inner: scope + 1..scope + 1,
            repeats: Some(FlatLoop {
                name: section.name.clone(),
                bound: section.bound.clone(),
                ends: section.ends,
                gather: section.gather.clone(),
            }),
            path: path.clone(),
        });
        self.section(&section.body, &At { scope, path, place: at.place.clone() }, problems);
        self.close_scope(scope);
    }

    fn close_scope(&mut self, scope: usize) {
        self.scopes[scope].steps.end = self.steps.len();
        self.scopes[scope].inner.end = self.scopes.len();
    }

    fn check_names(&self, problems: &mut Problems) {
        for (index, step) in self.steps.iter().enumerate() {
            if self.steps[..index].iter().any(|first| first.step.name == step.step.name) {
                let text = "another step of the walk has this name";
                problems.add(ProblemKind::Duplicate, &step.path, text);
            }
        }
        let name = |scope: &FlatScope| scope.repeats.as_ref().map(|repeats| repeats.name.clone());
        for (index, scope) in self.scopes.iter().enumerate().skip(1) {
            if self.scopes[1..index].iter().any(|first| name(first) == name(scope)) {
                let text = "another loop of the walk has this name";
                problems.add(ProblemKind::Duplicate, &scope.path, text);
            }
        }
    }
}

fn apply(wire: &Wire, steps: &mut [FlatStep], path: &str, problems: &mut Problems) {
    let (Wire::Target(name, ..) | Wire::Source(name, ..) | Wire::Open(name, _)) = wire;
    let Some(flat) = steps.iter_mut().find(|flat| flat.step.name == *name) else {
        let text = format!("step `{name}` is wired, but isn't in the section");
        problems.add(ProblemKind::Unknown, path, text);
        return;
    };
    let step = &mut flat.step;
    match wire {
        Wire::Target(_, output, target) => step.targets.push((output.clone(), target.clone())),
        Wire::Source(_, port, source) => match step.sources.iter_mut().find(|(p, _)| p == port) {
            Some((_, old)) => *old = source.clone(),
            None => step.sources.push((port.clone(), source.clone())),
        },
        Wire::Open(_, port) => {
            let before = step.sources.len();
            step.sources.retain(|(p, _)| p != port);
            if step.sources.len() == before {
                let text = format!("input `{port}` is to be opened, but has no source");
                problems.add(ProblemKind::Unknown, &flat.path, text);
            }
        }
    }
}
