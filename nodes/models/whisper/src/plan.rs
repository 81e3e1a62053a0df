//! Which walk a request takes: always `transcribe`, when the request is one for it.

use mstar_contract::{Invalid, NextWalk, Part, Plan, Request, Task, Value};
use mstar_graph::Modality;

use crate::options::{OPTIONS, Options, samples_transcript};

/// The plan of one request.
pub(crate) struct TranscribePlan {
    walk: NextWalk,
}

// --- impl TranscribePlan ---

impl TranscribePlan {
    /// Returns the plan for a request, or what is wrong with it.
    pub(crate) fn new(request: &Request) -> Result<Self, Invalid> {
        if matches!(request.task, Task::Chat | Task::Speak) {
            return Err(Invalid::new("model", "whisper writes down what is said; it neither answers nor speaks"));
        }
        if let Some(wanted) = request.outputs.iter().find(|m| !matches!(m, Modality::Text | Modality::Detail)) {
            return Err(Invalid::new("output_modalities", format!("whisper gives text, not {wanted}")));
        }
        if let Some(media) = request.media.iter().find(|media| media.modality != Modality::Audio) {
            return Err(Invalid::new(&media.field, format!("whisper listens to audio, not {}", media.modality)));
        }
        if let Some(media) = request.media.get(1) {
            return Err(Invalid::new(&media.field, "whisper takes one audio file at a time"));
        }
        let texts = request.messages.iter().flat_map(|message| &message.parts);
        if texts.into_iter().any(|part| matches!(part, Part::Text(text) if !text.trim().is_empty())) {
            return Err(Invalid::new(
                "text",
                "whisper takes audio only; spellings to expect go into model_kwargs.prompt",
            ));
        }
        request.refuse_unknown_options(&OPTIONS)?;
        Options::of(request)?;
        let temperature = request.sampling.temperature.filter(|_| samples_transcript(request));
        if temperature.is_some_and(|t| !(0.0..=1.0).contains(&t)) {
            return Err(Invalid::new("temperature", "must be from 0 to 1"));
        }
        let Some(media) = request.media.first() else {
            return Err(Invalid::new("files", "there is no audio to write down"));
        };
        let walk = NextWalk::new("main", "transcribe").input("upload", Value::Bytes(media.bytes.clone()));
        Ok(Self { walk })
    }
}

impl Plan for TranscribePlan {
    fn begin(&self) -> Vec<NextWalk> {
        vec![self.walk.clone()]
    }
}

#[cfg(test)]
mod tests {
    use mstar_contract::{Media, Message, Role};

    use super::*;

    fn request() -> Request {
        let media =
            |bytes: &'static [u8]| Media { modality: Modality::Audio, bytes: bytes.into(), field: "file".into() };
        Request {
            media: vec![media(b"RIFF")],
            outputs: [Modality::Text].into(),
            options: [("language".to_owned(), "en".into())].into(),
            ..Request::new("test", "whisper", Task::Transcribe)
        }
    }

    #[test]
    fn a_recording_is_written_down() {
        let walks = TranscribePlan::new(&request()).ok().map(|plan| plan.begin()).unwrap();
        assert_eq!((walks.len(), walks[0].walk.as_str(), walks[0].inputs.len()), (1, "transcribe", 1));
    }

    #[test]
    fn what_whisper_cannot_do_is_refused_with_its_field() {
        let check = |field: &str, change: &dyn Fn(&mut Request)| {
            let mut request = request();
            change(&mut request);
            assert_eq!(TranscribePlan::new(&request).err().map(|e| e.field).as_deref(), Some(field));
        };
        let text = |text: &str| Message { role: Role::User, parts: vec![Part::Text(text.into())] };
        check("model", &|r| r.task = Task::Speak);
        check("output_modalities", &|r| r.outputs = [Modality::Audio].into());
        check("files", &|r| r.media.clear());
        check("file", &|r| r.media.push(r.media[0].clone()));
        check("file", &|r| r.media[0].modality = Modality::Image);
        check("text", &|r| r.messages.push(text("What is said?")));
        check("temperature", &|r| r.sampling.temperature = Some(1.5));
        check("temperature", &|r| (r.task, r.sampling.temperature) = (Task::Generate, Some(f32::NAN)));
        check("model_kwargs.speed", &|r| drop(r.options.insert("speed".into(), 2.into())));
        check("model_kwargs.language", &|r| drop(r.options.insert("language".into(), "english please".into())));
        check("model_kwargs.language", &|r| drop(r.options.insert("language".into(), 7.into())));
        check("model_kwargs.timestamps", &|r| drop(r.options.insert("timestamps".into(), "yes".into())));
        check("model_kwargs.task", &|r| drop(r.options.insert("task".into(), "summarise".into())));
        check("model_kwargs.prompt", &|r| drop(r.options.insert("prompt".into(), "x".repeat(20_000).into())));
    }
}
