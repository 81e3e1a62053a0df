//! What plans check in a request before any op runs, with the field at fault.

use mstar_contract::{Invalid, Part, Request, Sampling};
use serde_json::{Value, json};

/// What becomes of media in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaParts {
    /// The model reads text only.
    Refuse,
    /// Other nodes of the walk read them.
    Skip,
}

/// The bounds of a model that samples tokens.
#[derive(Clone, Copy, Debug)]
pub struct SamplingBounds {
    /// Longest sequence in tokens.
    pub context: usize,
    /// Number of tokens.
    pub vocabulary: usize,
}

/// Returns the conversation as chat templates read it, a list of `{role, content}`; texts of one turn are joined by
/// line breaks, turns without any text are left out.
pub fn conversation(request: &Request, media: MediaParts) -> Result<Value, Invalid> {
    let mut turns = Vec::with_capacity(request.messages.len());
    for (i, message) in request.messages.iter().enumerate() {
        let mut texts = Vec::new();
        for (j, part) in message.parts.iter().enumerate() {
            match part {
                Part::Text(text) => texts.push(&**text),
                Part::Media(_) if media == MediaParts::Skip => {}
                Part::Media(index) => {
                    let kind = request.media.get(*index).map_or("media".to_owned(), |m| m.modality.to_string());
                    let field = format!("messages[{i}].content[{j}]");
                    return Err(Invalid::new(field, format!("model {} reads text only, not {kind}", request.model)));
                }
            }
        }
        if !texts.is_empty() {
            turns.push(json!({ "role": message.role.name(), "content": texts.join("\n") }));
        }
    }
    Ok(Value::Array(turns))
}

/// Refuses sampling settings that are out of range, naming the first.
pub fn check_sampling(sampling: &Sampling, bounds: SamplingBounds) -> Result<(), Invalid> {
    let ranges = [
        ("temperature", sampling.temperature, 0.0, 2.0),
        ("top_p", sampling.top_p, 0.0, 1.0),
        ("min_p", sampling.min_p, 0.0, 1.0),
        ("presence_penalty", sampling.presence_penalty, -2.0, 2.0),
        ("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0),
        ("repetition_penalty", sampling.repetition_penalty, 0.01, 10.0),
    ];
    for (field, value, least, most) in ranges {
        if value.is_some_and(|value| !(least..=most).contains(&value)) {
            return Err(Invalid::new(field, format!("must be from {least} to {most}")));
        }
    }
    if sampling.top_p == Some(0.0) {
        return Err(Invalid::new("top_p", "must be above 0"));
    }
    if sampling.logprobs.is_some_and(|n| n > 20) {
        return Err(Invalid::new("top_logprobs", "must be from 0 to 20"));
    }
    if sampling.max_tokens.is_some_and(|n| n == 0 || n as usize > bounds.context) {
        return Err(Invalid::new("max_tokens", format!("must be from 1 to {}", bounds.context)));
    }
    check_bias(sampling, bounds.vocabulary)?;
    check_stops(&sampling.stop)
}

fn check_bias(sampling: &Sampling, vocabulary: usize) -> Result<(), Invalid> {
    for (&token, bias) in &sampling.logit_bias {
        let field = || format!("logit_bias.{token}");
        if token as usize >= vocabulary {
            return Err(Invalid::new(field(), format!("the vocabulary has {vocabulary} tokens")));
        }
        if !(-100.0..=100.0).contains(bias) {
            return Err(Invalid::new(field(), "must be from -100 to 100"));
        }
    }
    Ok(())
}

const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 256;

fn check_stops(stops: &[String]) -> Result<(), Invalid> {
    if stops.len() > MAX_STOPS {
        return Err(Invalid::new("stop", format!("takes at most {MAX_STOPS} strings")));
    }
    match stops.iter().position(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
        Some(i) => Err(Invalid::new(format!("stop[{i}]"), format!("must have from 1 to {MAX_STOP_BYTES} bytes"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SamplingBounds = SamplingBounds { context: 100, vocabulary: 10 };

    #[test]
    fn the_default_sampling_is_in_range() {
        assert_eq!(check_sampling(&Sampling::default(), BOUNDS), Ok(()));
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let check = |field: &str, sampling: Sampling| {
            assert_eq!(check_sampling(&sampling, BOUNDS).unwrap_err().field, field);
        };
        check("temperature", Sampling { temperature: Some(2.5), ..Sampling::default() });
        check("temperature", Sampling { temperature: Some(f32::NAN), ..Sampling::default() });
        check("top_p", Sampling { top_p: Some(0.0), ..Sampling::default() });
        check("min_p", Sampling { min_p: Some(-0.1), ..Sampling::default() });
        check("presence_penalty", Sampling { presence_penalty: Some(-3.0), ..Sampling::default() });
        check("frequency_penalty", Sampling { frequency_penalty: Some(f32::INFINITY), ..Sampling::default() });
        check("repetition_penalty", Sampling { repetition_penalty: Some(0.0), ..Sampling::default() });
        check("top_logprobs", Sampling { logprobs: Some(21), ..Sampling::default() });
        check("max_tokens", Sampling { max_tokens: Some(0), ..Sampling::default() });
        check("max_tokens", Sampling { max_tokens: Some(101), ..Sampling::default() });
        check("logit_bias.10", Sampling { logit_bias: [(10, 0.0)].into(), ..Sampling::default() });
        check("logit_bias.1", Sampling { logit_bias: [(1, 101.0)].into(), ..Sampling::default() });
        check("stop[0]", Sampling { stop: vec![String::new()], ..Sampling::default() });
        check("stop", Sampling { stop: vec!["x".into(); 17], ..Sampling::default() });
    }
}
