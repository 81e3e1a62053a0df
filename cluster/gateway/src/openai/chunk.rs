//! Chunks of a streamed chat completion. There is one for every token, so they are written as they are, without a
//! document in between.

use serde::Serialize;
use serde_json::Value;

/// A `chat.completion.chunk`.
#[derive(Debug, Serialize)]
pub(super) struct Chunk<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Value>,
}

/// What a chunk adds to one of the answers.
#[derive(Debug, Serialize)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: u64,
    pub(super) delta: Delta<'a>,
    pub(super) logprobs: Option<Value>,
    pub(super) finish_reason: Option<&'static str>,
}

/// What is added.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Delta<'a> {
    /// Text, mostly a token's.
    Content { content: &'a str },
    /// Anything else.
    Other(Value),
}

// --- impl ChunkChoice ---

impl<'a> ChunkChoice<'a> {
    /// Returns a choice that does not end its answer.
    pub(super) fn new(index: u64, delta: Delta<'a>) -> Self {
        Self { index, delta, logprobs: None, finish_reason: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::streamed::event;

    #[test]
    fn a_chunk_reads_as_openai_writes_it() {
        let choices = [ChunkChoice::new(1, Delta::Content { content: "a \"b\"\n" })];
        let chunk =
            Chunk { id: "c", object: "chat.completion.chunk", created: 7, model: "m", choices: &choices, usage: None };
        let line = event(&chunk);
        let data: Value =
            serde_json::from_str(line.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap()).unwrap();
        let choice = json!({"index": 1, "delta": {"content": "a \"b\"\n"}, "logprobs": null, "finish_reason": null});
        let whole =
            json!({"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]});
        assert_eq!(data, whole);
    }
}
