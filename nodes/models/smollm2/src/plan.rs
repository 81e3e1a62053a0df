//! Which walk a request takes: always `chat`, when the request is one for it.

use mstar_blocks::{MediaParts, SamplingBounds, check_sampling, conversation};
use mstar_contract::{Invalid, NextWalk, Plan, Request, Task, Value};
use mstar_graph::Modality;

use crate::model::{CONTEXT, VOCABULARY};

/// The plan of one request.
pub(crate) struct ChatPlan {
    walk: NextWalk,
}

// --- impl ChatPlan ---

impl ChatPlan {
    /// Returns the plan for a request, or what is wrong with it.
    pub(crate) fn new(request: &Request) -> Result<Self, Invalid> {
        if matches!(request.task, Task::Speak | Task::Transcribe) {
            return Err(Invalid::new("model", "smollm2 answers text with text; it neither speaks nor transcribes"));
        }
        if let Some(wanted) = request.outputs.iter().find(|m| !matches!(m, Modality::Text | Modality::Detail)) {
            return Err(Invalid::new("output_modalities", format!("smollm2 gives text, not {wanted}")));
        }
        if let Some(media) = request.media.first() {
            return Err(Invalid::new(&media.field, format!("smollm2 reads text only, not {}", media.modality)));
        }
        request.refuse_unknown_options(&[])?;
        let bounds = SamplingBounds { context: CONTEXT as usize, vocabulary: VOCABULARY };
        check_sampling(&request.sampling, bounds)?;
        let messages = conversation(request, MediaParts::Refuse)?;
        if messages.as_array().is_none_or(Vec::is_empty) {
            return Err(Invalid::new("messages", "there is no text to answer"));
        }
        let mut walk = NextWalk::new("main", "chat").input("messages", Value::json(messages));
        if let Some(most) = request.sampling.max_tokens {
            walk = walk.limit("max_tokens", most);
        }
        Ok(Self { walk })
    }
}

impl Plan for ChatPlan {
    fn begin(&self) -> Vec<NextWalk> {
        vec![self.walk.clone()]
    }
}
