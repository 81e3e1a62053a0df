//! `[model.<id>]` and `default_model`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::fields::{At, Complaint, Fields};
use crate::{Catalogue, Model, ModelSettings, Precision, Weights};

/// Reads all models and the id of the default one.
pub(super) fn read(root: &mut Fields<'_>, catalogue: &Catalogue) -> (BTreeMap<String, ModelSettings>, String) {
    let default = root.text("default_model");
    let mut models = BTreeMap::new();
    let mut first_served = None;
    let tables = root.table("model").map(|fields| fields.named_tables()).unwrap_or_default();
    let any = !tables.is_empty();
    for (id, fields) in tables {
        let Some(model) = catalogue.model(id.value) else {
            fields.complain(&id.span, "", no_such_model(id.value, catalogue));
            continue;
        };
        let settings = settings(fields, model);
        if settings.serve {
            first_served.get_or_insert(id.value.to_owned());
        }
        models.insert(id.value.to_owned(), settings);
    }
    if models.values().all(|settings| !settings.serve) && (!models.is_empty() || !any) {
        root.missing("model", "no model is served; a table such as [model.smollm2] serves one");
    }
    if let Some(at) = &default {
        check_default(root, at, &models, catalogue);
    }
    let default = default.map(|at| at.value.to_owned()).or(first_served);
    (models, default.unwrap_or_default())
}

fn no_such_model(id: &str, catalogue: &Catalogue) -> Complaint {
    Complaint::unknown(format!("there is no model `{id}`"), id, catalogue.models.iter().map(|model| model.id.as_str()))
}

fn check_default(root: &Fields<'_>, at: &At<&str>, models: &BTreeMap<String, ModelSettings>, catalogue: &Catalogue) {
    let served = || models.iter().filter(|(_, settings)| settings.serve).map(|(id, _)| id.as_str());
    let complaint = match catalogue.model(at.value) {
        None => no_such_model(at.value, catalogue),
        Some(_) if served().any(|id| id == at.value) => return,
        Some(_) => Complaint::unknown(format!("`{}` is not served", at.value), at.value, served()),
    };
    root.complain(&at.span, "default_model", complaint);
}

fn settings(mut fields: Fields<'_>, model: &Model) -> ModelSettings {
    let serve = fields.flag("serve").unwrap_or(true);
    let weights = fields.text("weights");
    let precisions = [("f32", Precision::F32), ("bf16", Precision::Bf16), ("q8", Precision::Q8), ("q4", Precision::Q4)];
    let precision = fields.choice("precision", &precisions);
    let span = fields.span().clone();
    if model.components.is_empty() && (weights.is_some() || precision.is_some()) {
        let what = format!(
            "{} brings no components: set weights and precision at the models whose components it uses",
            model.id
        );
        fields.complain(&span, "", Complaint::new(what));
    }
    let walks = walks(&mut fields, model);
    fields.finish();
    let weights = match weights {
        Some(at) if at.value != "package" => Weights::Folder(PathBuf::from(at.value)),
        _ => Weights::Package,
    };
    ModelSettings { serve, weights, precision: precision.unwrap_or(Precision::F32), walks }
}

fn walks(fields: &mut Fields<'_>, model: &Model) -> Vec<String> {
    let all = || model.walks.iter().map(|walk| walk.name.clone()).collect();
    let Some(listed) = fields.list("walks", |value| value.as_str(), "names of walks") else {
        return all();
    };
    for (index, at) in listed.iter().enumerate() {
        let path = format!("walks[{index}]");
        if model.walk(at.value).is_none() {
            let known = model.walks.iter().map(|walk| walk.name.as_str());
            let what = format!("{} has no walk `{}`", model.id, at.value);
            fields.complain(&at.span, &path, Complaint::unknown(what, at.value, known));
        } else if listed[..index].iter().any(|earlier| earlier.value == at.value) {
            fields.complain(&at.span, &path, Complaint::new(format!("`{}` is listed twice", at.value)));
        }
    }
    if listed.is_empty() {
        let span = fields.span().clone();
        fields.complain(
            &span,
            "walks",
            Complaint::new("no walk is served").allowed("names of walks; serve = false for none"),
        );
    }
    // A walk that is misspelt would be missed by others.
    if listed.iter().all(|at| model.walk(at.value).is_some()) {
        check_ways(fields, model, &listed);
    }
    let known: Vec<String> =
        listed.into_iter().filter(|at| model.walk(at.value).is_some()).map(|at| at.value.to_owned()).collect();
    // Where none is right, all are taken: complaints about placements would only follow from the first mistake.
    if known.is_empty() { all() } else { known }
}

/// Complains about walks that no request could go through to its end.
fn check_ways(fields: &Fields<'_>, model: &Model, listed: &[At<&str>]) {
    let served: Vec<&str> = listed.iter().map(|at| at.value).collect();
    for (index, at) in listed.iter().enumerate() {
        let mut lacking = model.lacks(at.value, &served);
        lacking.sort_by_key(Vec::len);
        lacking.dedup();
        if lacking.is_empty() {
            continue;
        }
        let what = format!("no request can take `{}` without walks that are not served", at.value);
        let ways: Vec<String> = lacking.iter().map(|walks| format!("also {}", walks.join(", "))).collect();
        fields.complain(&at.span, &format!("walks[{index}]"), Complaint::new(what).allowed(ways.join("; or ")));
    }
}
