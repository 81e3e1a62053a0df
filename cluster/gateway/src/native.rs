//! `POST /generate`: the endpoint that M*'s own client speaks.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use mstar_contract::{Media, Message, Part, Role, Task, TraceContext};
use mstar_graph::Modality;
use mstar_media::{MediaKind, sniff};
use serde_json::{Value, json};

use crate::body::{Form, Upload, read_form};
use crate::call::{Call, Wanted};
use crate::fields::{Fields, parse_json};
use crate::fingerprint::Fingerprint;
use crate::idempotency::{Attachment, Claim};
use crate::label::label;
use crate::native_answer::{attached_document, attached_stream, document, write_stream};
use crate::sampling::read_sampling;
use crate::streamed::streamed;
use crate::{ApiError, Gateway};

/// The form's fields.
const FIELDS: [&str; 7] =
    ["text", "model", "input_modalities", "output_modalities", "streaming", "model_kwargs", "request_id"];

/// Longest prompt, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Runs any model's walks.
pub(crate) async fn generate(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (form, held) = read_form(request, &gateway).await?;
    form.refuse_unknown(&FIELDS, &["files"])?;
    let streaming = form.flag("streaming")?.unwrap_or(true);
    let kwargs = match form.one("model_kwargs")?.filter(|text| !text.trim().is_empty()) {
        Some(text) => parse_json(text.as_bytes()).map_err(|error| error.at("model_kwargs"))?,
        None => json!({}),
    };
    let model = model_of(&form, &kwargs)?;
    let print = form.one("request_id")?.map(|_| Fingerprint::of(&form));
    let mut wanted = read_wanted(form, &kwargs, gateway.limits.max_output_tokens)?;
    wanted.body = Some(held);
    let served = gateway.served(model.as_deref())?;
    let owner = match (wanted.id.clone(), print) {
        (Some(id), Some(print)) => match gateway.running.claim(&id, print)? {
            Claim::Attached(attachment) => {
                drop(wanted);
                return attached(id, attachment, streaming).await;
            }
            Claim::First(owner) => Some(owner),
        },
        _ => None,
    };
    let call = match Call::begin(&gateway, served, &headers, wanted).await {
        Ok(call) => call,
        Err(error) => {
            if let Some(owner) = owner {
                owner.finish(Err(error.clone()));
            }
            return Err(error);
        }
    };
    let labels = call.labels();
    Ok(labels(if streaming {
        streamed("application/x-ndjson", gateway.limits.reader_stall, move |writer| write_stream(writer, call, owner))
    } else {
        document(call, owner).await?
    }))
}

/// Answers with the end of a request that another client runs.
async fn attached(id: String, attachment: Attachment, streaming: bool) -> Result<Response, ApiError> {
    let end = attachment.end().await?;
    let mut response = if streaming { attached_stream(&end) } else { attached_document(&id, &end) };
    label(&mut response, &id.into(), TraceContext::default());
    Ok(response)
}

/// Returns the model's name, from its own field or from among the options, where M*'s client puts it.
fn model_of(form: &Form, kwargs: &Value) -> Result<Option<String>, ApiError> {
    let inner = match kwargs.get("model") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.as_str()),
        Some(_) => return Err(ApiError::field("model_kwargs.model", "must be a string")),
    };
    match (form.one("model")?, inner) {
        (Some(outer), Some(inner)) if outer != inner => {
            Err(ApiError::field("model_kwargs.model", format!("{inner:?} contradicts the field model, {outer:?}")))
        }
        (outer, inner) => Ok(outer.or(inner).map(str::to_owned)),
    }
}

fn read_wanted(form: Form, kwargs: &Value, token_limit: u32) -> Result<Wanted, ApiError> {
    let mut wanted = Wanted { task: Task::Generate, options_at: "model_kwargs.", ..Wanted::default() };
    wanted.id = form.one("request_id")?.map(str::to_owned);
    wanted.outputs = match form.one("output_modalities")? {
        Some(list) => read_modalities("output_modalities", list)?,
        None => BTreeSet::from([Modality::Text]),
    };
    let options = Fields::new("model_kwargs", kwargs)?;
    wanted.sampling = read_sampling(&options, token_limit)?;
    if wanted.sampling.logprobs.is_some() {
        wanted.outputs.insert(Modality::Detail);
    }
    wanted.seed = options.whole("seed", 0..=u64::MAX)?;
    for (key, value) in options.into_map() {
        if !SAMPLING_KEYS.contains(&key.as_str()) && !value.is_null() {
            wanted.options.insert(key.clone(), value.clone());
        }
    }
    let declared = form.one("input_modalities")?.map(|list| read_modalities("input_modalities", list)).transpose()?;
    let text = form.one("text")?.filter(|text| !text.is_empty()).map(str::to_owned);
    if text.as_ref().is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
        return Err(ApiError::field("text", format!("has more than {MAX_TEXT_BYTES} bytes")));
    }
    let mut parts = Vec::new();
    for (i, file) in form.files.into_iter().enumerate() {
        wanted.media.push(read_upload(i, file)?);
        parts.push(Part::Media(i));
    }
    parts.extend(text.map(|text| Part::Text(text.into())));
    if parts.is_empty() {
        return Err(ApiError::field("text", "is required when no file is given"));
    }
    if let Some(declared) = declared {
        agree(&declared, &parts, &wanted.media)?;
    }
    wanted.messages = vec![Message { role: Role::User, parts }];
    Ok(wanted)
}

/// Keys among the options that choose the model or how tokens are chosen.
const SAMPLING_KEYS: [&str; 17] = [
    "model",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "logprobs",
    "top_logprobs",
];

fn read_modalities(field: &str, list: &str) -> Result<BTreeSet<Modality>, ApiError> {
    let names: Vec<&str> = list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(ApiError::field(field, "names no modality"));
    }
    let read = |name: &&str| {
        name.parse::<Modality>().map_err(|_| {
            let known = "text, image, audio, video, action, tensor, detail";
            ApiError::field(field, format!("{name:?} is not one of {known}"))
        })
    };
    names.iter().map(read).collect()
}

fn read_upload(index: usize, file: Upload) -> Result<Media, ApiError> {
    let field = format!("files[{index}]");
    let kind = sniff(&file.bytes, file.content_type.as_deref(), file.file_name.as_deref());
    let modality = match kind {
        Some(MediaKind::Audio(_)) => Modality::Audio,
        Some(MediaKind::Image) => Modality::Image,
        Some(MediaKind::Video) => Modality::Video,
        Some(MediaKind::Text) | None => {
            let message = "is neither audio, image nor video by its content type, name or first bytes";
            return Err(ApiError::field(field, message));
        }
    };
    Ok(Media { modality, bytes: file.bytes, field })
}

fn agree(declared: &BTreeSet<Modality>, parts: &[Part], media: &[Media]) -> Result<(), ApiError> {
    let mut given: BTreeSet<Modality> = media.iter().map(|m| m.modality).collect();
    if parts.iter().any(|part| matches!(part, Part::Text(_))) {
        given.insert(Modality::Text);
    }
    match declared.symmetric_difference(&given).next() {
        None => Ok(()),
        Some(odd) if declared.contains(odd) => {
            Err(ApiError::field("input_modalities", format!("names {odd}, but none is given")))
        }
        Some(odd) => Err(ApiError::field("input_modalities", format!("does not name {odd}, which is given"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> Form {
        let mut form = Form::default();
        for (name, value) in fields {
            form.fields.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        form
    }

    #[track_caller]
    fn complains(fields: &[(&str, &str)], kwargs: Value, at: &str) {
        let form = form(fields);
        let error = model_of(&form, &kwargs).and_then(|_| read_wanted(form, &kwargs, 100)).expect_err("refused");
        assert_eq!(error.param.as_deref(), Some(at), "{}", error.message);
    }

    #[test]
    fn what_is_not_sampling_goes_to_the_model_as_an_option() {
        let kwargs = json!({"model": "voice", "temperature": 0.5, "voice": "heart", "max_output_tokens": 9});
        let wanted = read_wanted(form(&[("text", "hi")]), &kwargs, 100).unwrap();
        assert_eq!(wanted.options.keys().collect::<Vec<_>>(), ["voice"]);
        assert_eq!((wanted.sampling.max_tokens, wanted.sampling.temperature), (Some(9), Some(0.5)));
    }

    #[test]
    fn every_refusal_names_its_field() {
        complains(&[], json!({}), "text");
        complains(&[("text", "x"), ("output_modalities", "smell")], json!({}), "output_modalities");
        complains(&[("text", "x"), ("input_modalities", "audio")], json!({}), "input_modalities");
        complains(&[("text", "x")], json!([]), "model_kwargs");
        complains(&[("text", "x")], json!({"temperature": "hot"}), "model_kwargs.temperature");
        complains(&[("text", "x")], json!({"max_output_tokens": 101}), "model_kwargs.max_output_tokens");
        complains(&[("text", "x"), ("model", "a")], json!({"model": "b"}), "model_kwargs.model");
    }
}
