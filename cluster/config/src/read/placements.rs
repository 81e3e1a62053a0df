//! `[[placement]]`: which component runs where, for which walks; and the places of what the file does not place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fields::{At, Complaint, Fields, Source, Span};
use crate::{Bond, Catalogue, Component, Device, KvBudget, ModelSettings, Placement, Precision, Rank, WalkId, Weights};

/// What placements are checked against, and which (component, walk) already has its place.
struct Sites<'a> {
    catalogue: &'a Catalogue,
    ranks: &'a [Rank],
    /// Every served walk of every component that a served walk visits.
    visits: BTreeMap<&'a str, BTreeSet<WalkId>>,
    /// What placed a component for a walk.
    placed: BTreeMap<(&'a str, WalkId), Site>,
}

/// Where the file places a component for a walk.
struct Site {
    /// Which placement does.
    placement: String,
    path: String,
    span: Span,
    line: usize,
}

pub(super) fn read(
    root: &mut Fields<'_>,
    catalogue: &Catalogue,
    models: &BTreeMap<String, ModelSettings>,
    ranks: &[Rank],
) -> Vec<Placement> {
    let mut sites = Sites { catalogue, ranks, visits: visits(catalogue, models), placed: BTreeMap::new() };
    // Placements that name their walks come first: one without takes what is left.
    let (mut named, mut open) = (Vec::new(), Vec::new());
    for mut fields in root.tables("placement") {
        let component = component(&mut fields, &sites);
        let page = component.and_then(|component| page(component, catalogue, models));
        let placement = settings(&mut fields, component, page, ranks);
        let walks = fields.list("walks", |value| value.as_str(), "walks, as model.walk");
        let Some(component) = component else {
            fields.finish();
            continue;
        };
        match walks {
            Some(walks) => named.push((fields, placement, component, walks)),
            None => open.push((fields, placement, component)),
        }
    }
    let mut placements = Vec::new();
    for (fields, mut placement, component, walks) in named {
        placement.walks = sites.take_named(&fields, component, walks);
        fields.finish();
        placements.push(placement);
    }
    for (fields, mut placement, component) in open {
        placement.walks = sites.take_rest(&fields, component);
        fields.finish();
        placements.push(placement);
    }
    sites.check_bonds(root.source());
    placements.extend(sites.rest());
    placements
}

/// Returns the served walks that visit each component.
fn visits<'a>(
    catalogue: &'a Catalogue,
    models: &BTreeMap<String, ModelSettings>,
) -> BTreeMap<&'a str, BTreeSet<WalkId>> {
    let mut visits: BTreeMap<&str, BTreeSet<WalkId>> = BTreeMap::new();
    for model in &catalogue.models {
        let Some(settings) = models.get(&model.id).filter(|settings| settings.serve) else { continue };
        for walk in model.walks.iter().filter(|walk| settings.walks.contains(&walk.name)) {
            for component in &walk.components {
                let id = WalkId { model: model.id.clone(), walk: walk.name.clone() };
                visits.entry(component).or_default().insert(id);
            }
        }
    }
    visits
}

fn component<'a>(fields: &mut Fields<'_>, sites: &Sites<'a>) -> Option<&'a Component> {
    let Some(At { value, span }) = fields.text("node") else {
        fields.missing("node", "the component that is placed, such as smollm2.llm");
        return None;
    };
    let Some(component) = sites.catalogue.component(value) else {
        let known =
            sites.catalogue.models.iter().flat_map(|model| &model.components).map(|component| component.id.as_str());
        fields.complain(&span, "node", Complaint::unknown(format!("there is no component `{value}`"), value, known));
        return None;
    };
    if !sites.visits.contains_key(value) {
        let known = sites.visits.keys().copied();
        fields.complain(&span, "node", Complaint::unknown(format!("no served walk visits `{value}`"), "", known));
        return None;
    }
    Some(component)
}

/// Returns the bytes of a component's KV page, where the deployment has it with the weights of its package.
fn page(component: &Component, catalogue: &Catalogue, models: &BTreeMap<String, ModelSettings>) -> Option<u64> {
    let settings = catalogue.home(&component.id).and_then(|home| models.get(&home.id)).cloned().unwrap_or_default();
    let page = component.page.filter(|_| settings.weights == Weights::Package)?;
    Some(match settings.precision {
        Precision::F32 => page.f32,
        Precision::Bf16 | Precision::Q8 | Precision::Q4 => page.bf16,
    })
}

fn settings(fields: &mut Fields<'_>, component: Option<&Component>, page: Option<u64>, ranks: &[Rank]) -> Placement {
    let default = Placement::on(component.map_or("", |component| &component.id), &ranks[0].name);
    let rank = fields.text("rank");
    if let Some(at) = rank.as_ref().filter(|at| !ranks.iter().any(|rank| rank.name == at.value)) {
        let known = ranks.iter().map(|rank| rank.name.as_str());
        fields.complain(
            &at.span,
            "rank",
            Complaint::unknown(format!("there is no rank `{}`", at.value), at.value, known),
        );
    }
    if let (Some(at), Some(component)) = (&rank, component) {
        check_device(fields, component, at, ranks);
    }
    Placement {
        rank: rank.map_or(default.rank, |at| at.value.to_owned()),
        replicas: fields.whole("replicas", 1..=64).unwrap_or(default.replicas),
        max_batch_rows: fields.whole("max_batch_rows", 1..=4096).unwrap_or(default.max_batch_rows),
        max_batch_tokens: fields.whole("max_batch_tokens", 1..=1_000_000).unwrap_or(default.max_batch_tokens),
        wait: fields.whole("wait_us", 0..=1_000_000).map_or(default.wait, Duration::from_micros),
        kv: kv(fields, component, page),
        ..default
    }
}

/// Complains about a rank on a GPU for a component that computes on none.
fn check_device(fields: &mut Fields<'_>, component: &Component, rank: &At<&str>, ranks: &[Rank]) {
    let on_gpu = |rank: &&Rank| rank.device != Device::Cpu;
    if component.gpu || !ranks.iter().filter(on_gpu).any(|known| known.name == rank.value) {
        return;
    }
    let known = ranks.iter().filter(|rank| !on_gpu(rank)).map(|rank| rank.name.as_str());
    let message = format!("{} does not compute on a GPU, where rank `{}` is", component.id, rank.value);
    fields.complain(&rank.span, "rank", Complaint::unknown(message, "", known));
}

fn kv(fields: &mut Fields<'_>, component: Option<&Component>, page: Option<u64>) -> Option<KvBudget> {
    let budget = fields.size("kv_budget", 1 << 40);
    let pages: Option<usize> = fields.whole("kv_pages", 1..=10_000_000);
    let span = budget.as_ref().map_or(fields.span(), |at| &at.span).clone();
    let key = if budget.is_some() { "kv_budget" } else { "kv_pages" };
    let component = component?;
    if !component.kv && (budget.is_some() || pages.is_some()) {
        fields.complain(
            &span,
            key,
            Complaint::new(format!("{} keeps no KV", component.id)).allowed("nothing: drop the key"),
        );
        return None;
    }
    if budget.is_some() && pages.is_some() {
        fields.complain(&span, key, Complaint::new("kv_budget and kv_pages say the same").allowed("one of the two"));
    }
    if let Some(page) = page.filter(|page| budget.as_ref().is_some_and(|at| at.value < *page)) {
        let complaint = Complaint::new(format!("is too small for one page of {}", component.id));
        fields.complain(&span, key, complaint.allowed(format!("at least {page} bytes")));
    }
    let given = budget.map(|at| KvBudget::Bytes(at.value)).or(pages.map(KvBudget::Pages));
    component.kv.then(|| given.unwrap_or(KvBudget::Share))
}

// --- impl Site ---

impl Site {
    fn new(fields: &Fields<'_>, key: &str, span: &Span) -> Self {
        let (placement, path) = (fields.path(""), fields.path(key));
        Self { placement, path, span: span.clone(), line: fields.source().line(span) }
    }
}

// --- impl Sites ---

impl<'a> Sites<'a> {
    fn take_named(&mut self, fields: &Fields<'_>, component: &'a Component, listed: Vec<At<&str>>) -> Vec<WalkId> {
        let mut walks = Vec::new();
        for (index, At { value, span }) in listed.iter().enumerate() {
            let path = format!("walks[{index}]");
            let visits = &self.visits[component.id.as_str()];
            let Some(id) = visits.iter().find(|id| id.to_string() == *value).cloned() else {
                let known: Vec<String> = visits.iter().map(WalkId::to_string).collect();
                let what = format!("`{value}` is no served walk that visits {}", component.id);
                fields.complain(span, &path, Complaint::unknown(what, value, known.iter().map(String::as_str)));
                continue;
            };
            let key = (component.id.as_str(), id.clone());
            if let Some(first) = self.placed.get(&key) {
                let what = format!("{} was placed for {value} in line {}", component.id, first.line);
                fields.complain(span, &path, Complaint::new(what));
                continue;
            }
            self.placed.insert(key, Site::new(fields, &path, span));
            walks.push(id);
        }
        if listed.is_empty() {
            let complaint =
                Complaint::new("no walk is named").allowed("walks, as model.walk; without the key: all that are left");
            fields.complain(fields.span(), "walks", complaint);
        }
        walks
    }

    /// Takes all walks of the component that nobody named.
    fn take_rest(&mut self, fields: &Fields<'_>, component: &'a Component) -> Vec<WalkId> {
        let left = self.left(&component.id);
        if left.is_empty() {
            let lines: BTreeSet<usize> = self.visits[component.id.as_str()]
                .iter()
                .filter_map(|id| self.placed.get(&(component.id.as_str(), id.clone())).map(|site| site.line))
                .collect();
            let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
            let what = format!("{} was placed for all its walks already (line {})", component.id, lines.join(", "));
            fields.complain(fields.span(), "node", Complaint::new(what));
        }
        for id in &left {
            self.placed.insert((&component.id, id.clone()), Site::new(fields, "node", fields.span()));
        }
        left
    }

    /// Complains where walks that must share a placement do not.
    fn check_bonds(&self, source: &Source<'_>) {
        for model in &self.catalogue.models {
            model.bonds.iter().for_each(|bond| self.check_bond(source, &model.id, bond));
        }
    }

    fn check_bond(&self, source: &Source<'_>, model: &str, bond: &Bond) {
        let Some(visits) = self.visits.get(bond.component.as_str()) else { return };
        let bound = visits.iter().filter(|id| id.model == model && bond.walks.contains(&id.walk));
        let bound: Vec<(&WalkId, Option<&Site>)> =
            bound.map(|id| (id, self.placed.get(&(bond.component.as_str(), id.clone())))).collect();
        let placement = |site: Option<&Site>| site.map(|site| site.placement.clone());
        let last = bound.iter().filter_map(|(id, site)| Some((id, (*site)?))).max_by_key(|(_, site)| site.span.start);
        let Some((walk, site)) = last else { return };
        let apart = bound.iter().find(|(_, other)| placement(*other).as_ref() != Some(&site.placement));
        let Some((other, place)) = apart else { return };
        let place = place.map_or("by default".to_owned(), |site| format!("in line {}", site.line));
        let what = format!(
            "{walk} and {other}, which is placed {place}, need one placement of {}: {}",
            bond.component, bond.left
        );
        source.complain(&site.span, site.path.clone(), Complaint::new(what));
    }

    /// Places everything else on the first rank.
    fn rest(&self) -> Vec<Placement> {
        let unplaced = self.visits.keys().map(|component| (*component, self.left(component)));
        let place = |(component, walks)| Placement {
            walks,
            kv: self.catalogue.component(component).filter(|component| component.kv).map(|_| KvBudget::Share),
            ..Placement::on(component, &self.ranks[0].name)
        };
        unplaced.filter(|(_, walks): &(&str, Vec<WalkId>)| !walks.is_empty()).map(place).collect()
    }

    fn left(&self, component: &str) -> Vec<WalkId> {
        let free = |id: &&WalkId| !self.placed.keys().any(|(placed, walk)| *placed == component && walk == *id);
        self.visits[component].iter().filter(free).cloned().collect()
    }
}
