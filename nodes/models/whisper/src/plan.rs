//! Which walk a request takes: always `transcribe`, when the request is one for it.

use mstar_contract::{Invalid, NextWalk, Part, Plan, Request, Task, Value};
use mstar_graph::Modality;

use crate::options::{OPTIONS, Options};

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
        if request.sampling.temperature.is_some_and(|t| !(0.0..=1.0).contains(&t)) {
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
