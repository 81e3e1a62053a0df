//! What a request may ask of the speaker, and the walks it takes.

use mstar_contract::{Invalid, NextWalk, Part, Plan, Request, Role, Task, Value};
use mstar_graph::Modality;

use crate::model::{READ, SOUND, SPEECH};

/// The one voice of the package.
pub const VOICE: &str = "heart";
/// The option names.
pub const OPTIONS: [&str; 2] = ["voice", "speed"];

/// How to speak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeechOptions {
    /// 1 is the voice's own pace, 2 twice as fast.
    pub speed: f32,
}

/// The plan of one request: read, speak and sound, side by side.
#[derive(Debug)]
pub(crate) struct SpeakPlan {
    text: String,
}

// --- impl SpeechOptions ---

impl SpeechOptions {
    /// Returns how a request wants to be spoken to, or which option is wrong. Options of other parts of a model are
    /// not looked at.
    pub fn of(request: &Request) -> Result<Self, Invalid> {
        if let Some(voice) = request.options.get("voice")
            && voice.as_str() != Some(VOICE)
        {
            return Err(Invalid::new(field(request, "voice"), format!("must be {VOICE:?}, not {voice}")));
        }
        let speed = match request.options.get("speed") {
            None => 1.0,
            Some(value) => value
                .as_f64()
                .filter(|speed| (0.25..=4.0).contains(speed))
                .ok_or_else(|| Invalid::new(field(request, "speed"), format!("must be from 0.25 to 4, not {value}")))?,
        };
        Ok(Self { speed: speed as f32 })
    }
}

/// Returns the field of the endpoint that an option came in.
fn field(request: &Request, option: &str) -> String {
    match request.task {
        Task::Generate => format!("model_kwargs.{option}"),
        Task::Chat => format!("audio.{option}"),
        Task::Speak | Task::Transcribe => option.to_owned(),
    }
}

// --- impl SpeakPlan ---

impl SpeakPlan {
    /// Returns the plan for a request, or what is wrong with it.
    pub(crate) fn new(request: &Request) -> Result<Self, Invalid> {
        if request.task == Task::Transcribe {
            return Err(Invalid::new("model", "hibari speaks text; it does not transcribe"));
        }
        if let Some(wanted) = request.outputs.iter().find(|m| !matches!(m, Modality::Audio | Modality::Detail)) {
            return Err(Invalid::new("output_modalities", format!("hibari gives audio, not {wanted}")));
        }
        if let Some(media) = request.media.first() {
            return Err(Invalid::new(&media.field, format!("hibari reads text only, not {}", media.modality)));
        }
        request.refuse_unknown_options(&OPTIONS)?;
        SpeechOptions::of(request)?;
        let text = spoken_text(request);
        if !text.contains(char::is_alphanumeric) {
            return Err(Invalid::new(text_field(request), "there is nothing in it to say"));
        }
        Ok(Self { text })
    }
}

impl Plan for SpeakPlan {
    fn begin(&self) -> Vec<NextWalk> {
        let read = NextWalk::new(READ, "read").input("text", Value::text(self.text.as_str()));
        vec![read, NextWalk::new(SPEECH, "speech"), NextWalk::new(SOUND, "sound")]
    }
}

/// Returns the text to speak: that of the user's last turn.
fn spoken_text(request: &Request) -> String {
    let turn = request.messages.iter().rev().find(|message| message.role == Role::User);
    let parts = turn.map_or(&[][..], |turn| &turn.parts);
    let texts = parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(&**text) } else { None });
    texts.collect::<Vec<_>>().join("\n")
}

fn text_field(request: &Request) -> &'static str {
    match request.task {
        Task::Speak => "input",
        Task::Chat => "messages",
        _ => "text",
    }
}

#[cfg(test)]
mod tests {
    use mstar_contract::{Message, Model};
    use mstar_graph::WalkName;
    use serde_json::json;

    use super::*;

    fn request(text: &str, options: &[(&str, serde_json::Value)]) -> Request {
        Request {
            messages: vec![Message { role: Role::User, parts: vec![Part::Text(text.into())] }],
            outputs: [Modality::Audio].into(),
            options: options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            ..Request::new("r", "hibari", Task::Speak)
        }
    }

    fn complaint(request: &Request) -> Option<String> {
        SpeakPlan::new(request).err().map(|invalid| invalid.field)
    }

    #[test]
    fn a_request_to_speak_walks_in_three_partitions() {
        let plan = SpeakPlan::new(&request("Hello.", &[("voice", json!("heart")), ("speed", json!(2))])).unwrap();
        let walks: Vec<WalkName> = plan.begin().into_iter().map(|next| next.walk).collect();
        assert_eq!(crate::Hibari::new().ways(), [walks]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        for (options, field) in [
            (("voice", json!("alloy")), "voice"),
            (("voice", json!(3)), "voice"),
            (("speed", json!(5)), "speed"),
            (("speed", json!("fast")), "speed"),
            (("pitch", json!(1)), "model_kwargs.pitch"),
        ] {
            assert_eq!(complaint(&request("Hello.", &[options])).as_deref(), Some(field));
        }
        assert_eq!(complaint(&request(" ... ", &[])).as_deref(), Some("input"));
        let mut asks_for_text = request("Hello.", &[]);
        asks_for_text.outputs.insert(Modality::Text);
        assert_eq!(complaint(&asks_for_text).as_deref(), Some("output_modalities"));
        let mut native = request("Hello.", &[("speed", json!(0))]);
        native.task = Task::Generate;
        assert_eq!(complaint(&native).as_deref(), Some("model_kwargs.speed"));
    }
}
