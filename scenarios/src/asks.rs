//! The requests of a story: mixed, short, each one its own, the same for the same seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use mstar_actors::{ClientStream, Submit};
use mstar_contract::{Failure, FailureKind, Media, Message, Part, Request, Role, Sampling, Task, TraceContext};
use mstar_graph::Modality;
use mstar_media::{AudioFormat, encode};
use mstar_runtime::Cluster;

use crate::error::StoryError;
use crate::lots::Lots;
use crate::reply::Reply;
use crate::setting::Setting;

/// A deployment and what is asked of it.
pub(crate) struct Asks {
    cluster: Arc<Cluster>,
    fake: bool,
    seed: u64,
    max_tokens: u32,
    recordings: Vec<Bytes>,
    submitted: AtomicU64,
}

/// What one request asks, beside what all share.
struct Ask {
    model: &'static str,
    task: Task,
    text: Option<String>,
    recording: Option<Bytes>,
    outputs: &'static [Modality],
    walk: Option<&'static str>,
}

/// What the scripted model is asked for.
const FAKE_WALKS: [&str; 6] = ["chat", "converse", "speak", "nested", "fan", "recall"];
/// What real models are asked for.
const REAL_KINDS: [&str; 5] = ["chat", "speech", "transcription", "converse", "heard"];

/// What sentences are about, and what they say of it.
const NOUNS: [&str; 12] =
    ["train", "garden", "kettle", "lamp", "river", "window", "letter", "bridge", "baker", "clock", "road", "cat"];
const SAYINGS: [&str; 7] = ["is late", "looks fine", "was here", "is quiet", "turned blue", "is ready", "went home"];

// --- impl Asks ---

impl Asks {
    /// Returns what is asked of a deployment; for real models it makes the recordings that are to be heard.
    pub(crate) async fn new(setting: &Setting, cluster: &Arc<Cluster>, max_tokens: u32) -> Result<Self, StoryError> {
        let mut asks = Self {
            cluster: Arc::clone(cluster),
            fake: setting.fake,
            seed: setting.seed,
            max_tokens,
            recordings: Vec::new(),
            submitted: AtomicU64::new(0),
        };
        if !setting.fake {
            for n in 0..4 {
                let recording = asks.record(n).await?;
                asks.recordings.push(recording);
            }
            setting.tell("the recordings are made");
        }
        Ok(asks)
    }

    /// Returns what is asked for, one after the other and then again.
    pub(crate) fn kinds(&self) -> &'static [&'static str] {
        if self.fake { &FAKE_WALKS } else { &REAL_KINDS }
    }

    /// Returns the place of the `n`th request's kind.
    pub(crate) fn kind(&self, n: usize) -> usize {
        n % self.kinds().len()
    }

    /// Hands the `n`th request in.
    pub(crate) async fn submit(&self, n: usize) -> Result<ClientStream, Failure> {
        self.hand_in(if self.fake { fake(n) } else { self.real(n) }, n).await
    }

    /// Serves the `n`th request to its end.
    pub(crate) async fn reply(&self, n: usize) -> Result<Reply, Failure> {
        Reply::read(self.submit(n).await?).await
    }

    /// Speaks a sentence and returns the recording.
    async fn record(&self, n: usize) -> Result<Bytes, StoryError> {
        let failed = |source| StoryError::Request { what: "speaking a sentence to be heard", source };
        let stream = self.hand_in(speech(sentence(n * 5)), n).await.map_err(failed)?;
        let reply = Reply::read(stream).await.map_err(failed)?;
        Ok(encode(AudioFormat::Wav, &reply.samples(), reply.sample_rate.max(1))?.into())
    }

    fn real(&self, n: usize) -> Ask {
        let recording = || self.recordings.get(n % self.recordings.len().max(1)).cloned();
        let of_two = |one, other| if (n / REAL_KINDS.len()).is_multiple_of(2) { one } else { other };
        let chat = |outputs| Ask {
            model: "voice",
            task: Task::Chat,
            text: Some(format!("Say something about this: the {}.", sentence(n))),
            recording: None,
            outputs,
            walk: None,
        };
        match self.kinds()[self.kind(n)] {
            "chat" => Ask { model: of_two("voice", "smollm2"), ..chat(&[Modality::Text]) },
            "speech" => Ask { model: of_two("voice", "hibari"), ..speech(sentence(n)) },
            "transcription" => Ask {
                model: of_two("voice", "whisper"),
                task: Task::Transcribe,
                text: None,
                recording: recording(),
                ..chat(&[Modality::Text])
            },
            "converse" => chat(&[Modality::Text, Modality::Audio]),
            _ => Ask { text: None, recording: recording(), ..chat(&[Modality::Text, Modality::Audio]) },
        }
    }

    async fn hand_in(&self, ask: Ask, n: usize) -> Result<ClientStream, Failure> {
        let Some(served) = self.cluster.served(ask.model) else {
            return Err(Failure::new(FailureKind::Invalid, format!("model {} is not served", ask.model)));
        };
        let number = self.submitted.fetch_add(1, Ordering::Relaxed);
        let request = Arc::new(self.request(ask, n, format!("story-{number}-of-{n}")));
        let submit = Submit { request, served: Arc::clone(served), deadline: None, trace: TraceContext::default() };
        self.cluster.ingress().submit(submit).await
    }

    fn request(&self, ask: Ask, n: usize, id: String) -> Request {
        let (mut parts, mut media) = (Vec::new(), Vec::new());
        if let Some(bytes) = ask.recording {
            media.push(Media { modality: Modality::Audio, bytes, field: "file".to_owned() });
            parts.push(Part::Media(0));
        }
        parts.extend(ask.text.map(|text| Part::Text(text.into())));
        let samples = matches!(ask.task, Task::Chat | Task::Generate);
        // Drawn, not greedy: whoever runs again must draw the same.
        let sampling = Sampling {
            temperature: samples.then_some(0.8),
            max_tokens: samples.then_some(self.max_tokens),
            ..Sampling::default()
        };
        Request {
            messages: vec![Message { role: Role::User, parts }],
            media,
            outputs: ask.outputs.iter().copied().collect(),
            sampling,
            seed: Lots::new(self.seed, "requests").at(n as u64),
            options: ask.walk.map(|walk| ("walk".to_owned(), walk.into())).into_iter().collect(),
            ..Request::new(id, ask.model, ask.task)
        }
    }
}

fn fake(n: usize) -> Ask {
    Ask {
        model: "fake",
        task: Task::Generate,
        text: Some(format!("Request {n}: the {}. Go on. And on!", sentence(n))),
        recording: None,
        outputs: &[Modality::Text, Modality::Audio],
        walk: Some(FAKE_WALKS[n % FAKE_WALKS.len()]),
    }
}

fn speech(sentence: String) -> Ask {
    Ask {
        model: "voice",
        task: Task::Speak,
        text: Some(format!("The {sentence}.")),
        recording: None,
        outputs: &[Modality::Audio],
        walk: None,
    }
}

/// Returns the beginning of a sentence, without its article.
pub(crate) fn sentence(n: usize) -> String {
    format!("{} {}", NOUNS[n % NOUNS.len()], SAYINGS[n % SAYINGS.len()])
}
