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

#[cfg(test)]
mod tests {
    use mstar_contract::{Media, Message, Part, Role, Sampling};

    use super::*;

    fn request() -> Request {
        let turn = |role, text: &str| Message { role, parts: vec![Part::Text(text.into())] };
        Request {
            messages: vec![turn(Role::System, "Be brief."), turn(Role::User, "Hi")],
            outputs: [Modality::Text].into(),
            sampling: Sampling { max_tokens: Some(20), ..Sampling::default() },
            ..Request::new("test", "smollm2", Task::Chat)
        }
    }

    #[test]
    fn a_conversation_is_answered_within_its_bound() {
        let walk = ChatPlan::new(&request()).ok().map(|plan| plan.begin().remove(0)).unwrap();
        assert_eq!(walk.limits, [("max_tokens".to_owned(), 20)]);
        let messages = walk.inputs[0].1.as_json().cloned().unwrap();
        assert_eq!(
            messages,
            serde_json::json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
        );
    }

    #[test]
    fn what_smollm2_cannot_do_is_refused_with_its_field() {
        let check = |field: &str, change: &dyn Fn(&mut Request)| {
            let mut request = request();
            change(&mut request);
            assert_eq!(ChatPlan::new(&request).err().map(|e| e.field).as_deref(), Some(field));
        };
        let image = || Media { modality: Modality::Image, bytes: vec![].into(), field: "files[0]".into() };
        check("model", &|r| r.task = Task::Transcribe);
        check("output_modalities", &|r| r.outputs = [Modality::Audio].into());
        check("files[0]", &|r| r.media.push(image()));
        check("messages[1].content[1]", &|r| r.messages[1].parts.push(Part::Media(0)));
        check("messages", &|r| r.messages.clear());
        check("max_tokens", &|r| r.sampling.max_tokens = Some(8193));
        check("temperature", &|r| r.sampling.temperature = Some(-1.0));
        check("model_kwargs.voice", &|r| drop(r.options.insert("voice".into(), "heart".into())));
    }
}
