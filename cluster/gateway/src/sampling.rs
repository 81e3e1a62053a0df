//! Reads how tokens are to be chosen, for every endpoint that samples.

use mstar_contract::Sampling;
use serde_json::Value;

use crate::ApiError;
use crate::fields::{Fields, kind_of};

/// Most stop strings, and most bytes of one.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 256;
/// Most likeliest tokens that may be reported.
const MAX_TOP_LOGPROBS: u64 = 20;
/// Most entries of a logit bias.
const MAX_BIASES: usize = 1024;

/// The names that a bound on sampled tokens goes by.
const MAX_TOKENS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"];

/// Reads the sampling fields of an object; `limit` is the deployment's bound on sampled tokens.
pub(crate) fn read_sampling(fields: &Fields<'_>, limit: u32) -> Result<Sampling, ApiError> {
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=2.0)?,
        top_p: fields.number("top_p", 0.0..=1.0)?,
        top_k: fields.whole("top_k", 0..=u64::from(u32::MAX))?.map(|k| k as u32),
        min_p: fields.number("min_p", 0.0..=1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01..=10.0)?,
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?,
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?,
        logit_bias: read_bias(fields)?,
        stop: read_stops(fields)?,
        max_tokens: read_max_tokens(fields, limit)?,
        logprobs: read_logprobs(fields)?,
    })
}

fn read_max_tokens(fields: &Fields<'_>, limit: u32) -> Result<Option<u32>, ApiError> {
    let mut found: Option<(&str, u32)> = None;
    for name in MAX_TOKENS {
        let Some(bound) = fields.whole(name, 1..=u64::from(limit))? else { continue };
        match found {
            Some((other, value)) if u64::from(value) != bound => {
                return Err(ApiError::field(fields.path(name), format!("contradicts {other}")));
            }
            _ => found = Some((name, bound as u32)),
        }
    }
    Ok(found.map(|(_, bound)| bound))
}

fn read_logprobs(fields: &Fields<'_>) -> Result<Option<u8>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
    match (wanted, top) {
        (false, Some(n)) if n > 0 => Err(ApiError::field(fields.path("top_logprobs"), "needs logprobs to be true")),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as u8)),
    }
}

fn read_stops(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let path = fields.path("stop");
    let stops: Vec<String> = match fields.raw("stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => list
            .iter()
            .enumerate()
            .map(|(i, value)| {
                let complaint = || ApiError::field(format!("{path}[{i}]"), "must be a string");
                value.as_str().map(str::to_owned).ok_or_else(complaint)
            })
            .collect::<Result<_, _>>()?,
        Some(other) => {
            return Err(ApiError::field(path, format!("must be a string or a list, not {}", kind_of(other))));
        }
    };
    if stops.len() > MAX_STOPS {
        return Err(ApiError::field(path, format!("has more than {MAX_STOPS} strings")));
    }
    match stops.iter().position(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
        Some(i) => Err(ApiError::field(format!("{path}[{i}]"), format!("must have 1 to {MAX_STOP_BYTES} bytes"))),
        None => Ok(stops),
    }
}

fn read_bias(fields: &Fields<'_>) -> Result<std::collections::BTreeMap<u32, f32>, ApiError> {
    let path = fields.path("logit_bias");
    let Some(object) = fields.object("logit_bias")? else { return Ok(Default::default()) };
    let map = object.into_map();
    if map.len() > MAX_BIASES {
        return Err(ApiError::field(path, format!("has more than {MAX_BIASES} entries")));
    }
    map.iter()
        .map(|(key, value)| {
            let at = format!("{path}.{key}");
            let token = key.parse::<u32>().map_err(|_| ApiError::field(at.clone(), "the key must be a token id"))?;
            match value.as_f64() {
                Some(bias) if (-100.0..=100.0).contains(&bias) => Ok((token, bias as f32)),
                _ => Err(ApiError::field(at, "must be a number from -100 to 100")),
            }
        })
        .collect()
}
