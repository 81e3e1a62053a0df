//! From a row's logits to what the row gives back.

use mstar_contract::{Decoder, Row, RowError, RowOutput, SequenceView, Usage, Value};
use mstar_graph::LoopName;
use serde_json::{Value as Json, json};

use super::sequence::Sequence;
use crate::sample::Logprobs;

/// Samples a token and writes it: the last part of a row.
pub(super) fn sample(
    sequence: &mut Sequence,
    decoder: &dyn Decoder,
    row: &Row,
    logits: &mut [f32],
    stop: Option<&LoopName>,
) -> Result<RowOutput, RowError> {
    let view = SequenceView { prompt: &sequence.prompt, sampled: &sequence.sampled, params: &row.params };
    decoder.constrain(logits, &view);
    let pick = sequence.sampler.pick(logits, &sequence.history, row.draw);
    let pick = pick.ok_or_else(|| RowError::Internal("no logit is a number".to_owned()))?;
    let written = sequence.write(pick.token, decoder);
    let mut output = RowOutput { sampled: Some(pick.token), finish: written.finish, ..RowOutput::default() };
    output.push("token", Value::token(pick.token));
    if !written.text.is_empty() {
        output.push("text", Value::text(written.text));
    }
    if let Some(logprobs) = &pick.logprobs {
        output.push("detail", Value::json(detail(sequence, pick.token, logprobs)));
    }
    if written.finish.is_some() {
        output.stops.extend(stop.cloned());
    }
    output.usage = Usage { prompt_tokens: sequence.tell_prompt(), completion_tokens: 1 };
    Ok(output)
}

/// Returns `{"logprobs": [entry]}` with one entry for the token: its id, its text and bytes where it has any, its
/// log-probability, and the same of the likeliest tokens under `top_logprobs`.
fn detail(sequence: &Sequence, token: u32, logprobs: &Logprobs) -> Json {
    let top: Vec<Json> = logprobs.top.iter().map(|&(token, logprob)| entry(sequence, token, logprob)).collect();
    let mut chosen = entry(sequence, token, logprobs.chosen);
    chosen["top_logprobs"] = Json::Array(top);
    json!({ "logprobs": [chosen] })
}

fn entry(sequence: &Sequence, token: u32, logprob: f32) -> Json {
    // JSON has no minus infinity; this is what clients know for "hardly ever".
    let mut entry = json!({ "id": token, "logprob": logprob.max(-9999.0) });
    if sequence.is_text() {
        let bytes = sequence.bytes(token);
        entry["token"] = String::from_utf8_lossy(bytes).into();
        entry["bytes"] = bytes.into();
    }
    entry
}
