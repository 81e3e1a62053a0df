//! What this build has.

use std::sync::Arc;

use mstar_engines::fake::{FakeComponent, FakeModel, FakeSettings};
use mstar_graph::GraphProblems;
use mstar_hibari::Hibari;
use mstar_smollm2::SmolLm2;
use mstar_voice::{Parts, Voice};
use mstar_whisper::Whisper;

use crate::{Entry, Zoo, ZooError};

// --- impl Zoo ---

impl Zoo {
    /// Returns the models that users are served.
    pub fn standard() -> Result<Self, ZooError> {
        Self::new(vec![
            Entry::new(SmolLm2::new(), mstar_smollm2::components()),
            Entry::new(Whisper::new(), mstar_whisper::components()),
            Entry::new(Hibari::new(), mstar_hibari::components()),
            Entry::new(voice()?, vec![]),
        ])
    }

    /// Returns them and the scripted model `fake`, which needs no weights.
    pub fn with_fake() -> Result<Self, ZooError> {
        Self::with_fake_as(&FakeSettings::default())
    }

    /// Returns them and the scripted model `fake`, which behaves as told.
    pub fn with_fake_as(settings: &FakeSettings) -> Result<Self, ZooError> {
        let fake = Entry::new(FakeModel::new()?, FakeComponent::all(settings));
        Self::standard()?.and(vec![fake])
    }
}

/// A voice assistant has no components of its own: its walks are made of those of the models above.
fn voice() -> Result<Voice, GraphProblems> {
    Voice::new(Parts {
        chat: mstar_smollm2::chat_fragment(),
        transcribe: mstar_whisper::transcribe_fragment(),
        read: mstar_hibari::read_fragment(),
        read_stream: mstar_hibari::read_stream_fragment,
        speech: mstar_hibari::speech_fragment(),
        sound: mstar_hibari::sound_fragment(),
        answers: Arc::new(SmolLm2::new()),
        listens: Arc::new(Whisper::new()),
        speaks: Arc::new(Hibari::new()),
    })
}

#[cfg(test)]
mod tests {
    use mstar_contract::{Media, Message, Part, Request, Role, Sampling, Task};
    use mstar_graph::Modality;

    use super::*;

    #[test]
    fn the_models_of_this_build_fit_together() {
        let zoo = Zoo::standard().unwrap();
        let voice = zoo.entries().iter().find(|entry| entry.model.id() == "voice").unwrap();
        assert!(voice.components.is_empty());
        let homes = voice.model.graph().nodes().map(|(_, component)| zoo.home(component.as_str()).unwrap());
        let homes: std::collections::BTreeSet<String> = homes.map(|home| home.as_str().to_owned()).collect();
        assert_eq!(homes.into_iter().collect::<Vec<_>>(), ["hibari", "smollm2", "whisper"]);
    }

    #[test]
    fn a_temperature_is_judged_by_whoever_samples() {
        let zoo = Zoo::standard().unwrap();
        let voice = zoo.entries().iter().find(|entry| entry.model.id() == "voice").unwrap();
        let recording = Media { modality: Modality::Audio, bytes: (&b"RIFF"[..]).into(), field: "file".into() };
        let complaint = |task, outputs: &[Modality]| {
            let request = Request {
                messages: vec![Message { role: Role::User, parts: vec![Part::Media(0)] }],
                media: vec![recording.clone()],
                outputs: outputs.iter().copied().collect(),
                sampling: Sampling { temperature: Some(1.5), ..Sampling::default() },
                ..Request::new("test", "voice", task)
            };
            voice.model.plan(&Arc::new(request)).err().map(|invalid| invalid.field)
        };
        // Whisper's goes up to 1, an answer's up to 2.
        assert_eq!(complaint(Task::Transcribe, &[Modality::Text]).as_deref(), Some("temperature"));
        assert_eq!(complaint(Task::Generate, &[Modality::Text]).as_deref(), Some("temperature"));
        assert_eq!(complaint(Task::Generate, &[Modality::Text, Modality::Audio]), None);
        assert_eq!(complaint(Task::Chat, &[Modality::Text]), None);
    }
}
