//! Which walks a request takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use mstar_blocks::{MediaParts, conversation};
use mstar_contract::{Invalid, Kept, Message, Model, NextWalk, Part, Plan, Request, Role, Sampling, Task, Value};
use mstar_graph::{Modality, PartitionName, WalkName};
use serde_json::json;

use crate::model::{MAIN, Members, READ, SOUND, SPEECH};

/// What is said to the LLM before a spoken conversation, where the client says nothing of the kind.
const SPOKEN_STYLE: &str = "You are a helpful AI assistant. Answer in one or two short sentences.";

/// The way of a request through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Answer in text.
    Chat {
        /// Hear the recording first.
        listens: bool,
    },
    /// Answer in text and speech.
    Converse {
        /// Hear the recording first.
        listens: bool,
    },
    /// Read the text out.
    Speak,
    /// Write down what is said.
    Transcribe,
}

/// Returns the way of a request with text, audio or both, and these wanted outputs.
pub fn route(task: Task, text: bool, audio: bool, outputs: &BTreeSet<Modality>) -> Route {
    let (speaks, writes) = (outputs.contains(&Modality::Audio), outputs.contains(&Modality::Text));
    match task {
        Task::Speak => Route::Speak,
        Task::Transcribe => Route::Transcribe,
        Task::Chat if speaks => Route::Converse { listens: audio },
        Task::Chat => Route::Chat { listens: audio },
        Task::Generate if speaks && !writes && !audio => Route::Speak,
        Task::Generate if speaks => Route::Converse { listens: audio },
        Task::Generate if audio && !text => Route::Transcribe,
        Task::Generate => Route::Chat { listens: audio },
    }
}

/// Returns the walks of every way: what [`VoicePlan`] begins with and what may follow.
pub(crate) fn ways() -> Vec<Vec<WalkName>> {
    let ways: [&[&str]; 6] = [
        &["chat"],
        &["listen", "chat"],
        &["converse", "read", "say", "sound"],
        &["listen", "converse", "read", "say", "sound"],
        &["speak", "say", "sound"],
        &["transcribe"],
    ];
    ways.iter().map(|way| way.iter().map(|&walk| walk.into()).collect()).collect()
}

/// The plan of one request.
pub(crate) struct VoicePlan {
    route: Route,
    first: Vec<NextWalk>,
    /// What follows once the recording was heard.
    answer: Option<NextWalk>,
}

// --- impl VoicePlan ---

impl VoicePlan {
    /// Returns the plan for a request, or what is wrong with it.
    pub(crate) fn new(request: &Arc<Request>, members: &Members) -> Result<Self, Invalid> {
        if let Some(media) = request.media.iter().find(|m| m.modality != Modality::Audio) {
            return Err(Invalid::new(&media.field, format!("voice takes text and audio, not {}", media.modality)));
        }
        if let Some(second) = request.media.get(1) {
            return Err(Invalid::new(&second.field, "voice hears one recording per request"));
        }
        let spoken = |m: &&Modality| !matches!(m, Modality::Text | Modality::Audio | Modality::Detail);
        if let Some(wanted) = request.outputs.iter().find(spoken) {
            return Err(Invalid::new("output_modalities", format!("voice gives text and audio, not {wanted}")));
        }
        let (text, audio) = (has_text(request), !request.media.is_empty());
        let route = route(request.task, text, audio, &request.outputs);
        check(request, route, members)?;
        if let (Some(media), true) = (request.media.first(), goes_on_after_recording(request)) {
            // What is heard becomes the last turn: it would stand behind what was said after it.
            return Err(Invalid::new(&media.field, "the recording must be in the last turn"));
        }
        Self::along(request, route)
    }

    fn along(request: &Request, route: Route) -> Result<Self, Invalid> {
        let speech = || [NextWalk::new(SPEECH, "say"), NextWalk::new(SOUND, "sound")];
        let (listens, walk) = match route {
            Route::Speak => {
                let text = request.last_text().unwrap_or_default();
                let mut first = vec![NextWalk::new(READ, "speak").input("text", Value::text(text))];
                first.extend(speech());
                return Ok(Self { route, first, answer: None });
            }
            Route::Transcribe => {
                let first = vec![NextWalk::new(MAIN, "transcribe").input("upload", upload(request)?)];
                return Ok(Self { route, first, answer: None });
            }
            Route::Chat { listens } => (listens, "chat"),
            Route::Converse { listens } => (listens, "converse"),
        };
        let mut turns = conversation(request, MediaParts::Skip)?;
        let instructed = request.messages.iter().any(|message| message.role == Role::System);
        if let (Route::Converse { .. }, false, Some(turns)) = (route, instructed, turns.as_array_mut()) {
            turns.insert(0, json!({"role": "system", "content": SPOKEN_STYLE}));
        }
        let mut answer = NextWalk::new(MAIN, walk).input("messages", Value::json(turns));
        if let Some(most) = request.sampling.max_tokens {
            answer = answer.limit("max_tokens", most);
        }
        let (mut first, answer) = if listens {
            (vec![NextWalk::new(MAIN, "listen").input("upload", upload(request)?)], Some(answer))
        } else {
            (vec![answer], None)
        };
        if let Route::Converse { .. } = route {
            first.push(NextWalk::new(READ, "read"));
            first.extend(speech());
        }
        Ok(Self { route, first, answer })
    }
}

impl Plan for VoicePlan {
    fn begin(&self) -> Vec<NextWalk> {
        self.first.clone()
    }

    fn follows(&self) -> Vec<WalkName> {
        self.answer.iter().map(|next| next.walk.clone()).collect()
    }

    fn next(&self, _partition: &PartitionName, finished: &WalkName, _kept: &Kept) -> Option<NextWalk> {
        if finished.as_str() == "listen" { self.answer.clone() } else { None }
    }
}

impl std::fmt::Debug for VoicePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VoicePlan").field("route", &self.route).finish_non_exhaustive()
    }
}

fn has_text(request: &Request) -> bool {
    let mut parts = request.messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| matches!(part, Part::Text(text) if !text.trim().is_empty()))
}

/// Returns whether there are turns after the one with the recording.
fn goes_on_after_recording(request: &Request) -> bool {
    let holds = |message: &Message| message.parts.iter().any(|part| matches!(part, Part::Media(_)));
    let at = request.messages.iter().position(holds);
    at.is_some_and(|at| request.messages[at + 1..].iter().any(|message| !message.parts.is_empty()))
}

fn upload(request: &Request) -> Result<Value, Invalid> {
    match request.media.first() {
        Some(media) => Ok(Value::Bytes(media.bytes.clone())),
        None => Err(Invalid::new("files", "there is no recording to hear")),
    }
}

/// Asks the members that the way leads through whether they would take their share; they know their own options.
fn check(request: &Arc<Request>, route: Route, members: &Members) -> Result<(), Invalid> {
    let (listens, answers, speaks) = match route {
        Route::Chat { listens } => (listens, true, false),
        Route::Converse { listens } => (listens, true, true),
        Route::Speak => (false, false, true),
        Route::Transcribe => (true, false, false),
    };
    let known: Vec<String> =
        [listens.then(|| members.listens.card().options), speaks.then(|| members.speaks.card().options)]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
    request.refuse_unknown_options(&known.iter().map(String::as_str).collect::<Vec<_>>())?;
    if route == Route::Speak && !request.media.is_empty() {
        return Err(Invalid::new(&request.media[0].field, "speech is made from text; leave the recording out"));
    }
    if listens {
        let mut share = share(request, &members.listens);
        share.messages = Vec::new();
        share.outputs = BTreeSet::from([Modality::Text]);
        if route != Route::Transcribe {
            // Who answers is asked for the sampling, not who listens.
            (share.task, share.sampling) = (Task::Generate, Sampling::default());
        }
        members.listens.plan(&Arc::new(share))?;
    }
    if answers {
        let mut share = share(request, &members.answers);
        share.outputs = BTreeSet::from([Modality::Text]);
        share.media.clear();
        share.messages = written_turns(request, listens);
        members.answers.plan(&Arc::new(share))?;
    }
    if speaks {
        let mut share = share(request, &members.speaks);
        share.outputs = BTreeSet::from([Modality::Audio]);
        share.media.clear();
        if route != Route::Speak {
            // The text to be spoken is not there yet; the options are.
            share.messages = vec![Message { role: Role::User, parts: vec![Part::Text("words".into())] }];
        }
        members.speaks.plan(&Arc::new(share))?;
    }
    Ok(())
}

/// Returns the request with only the options that a member knows.
fn share(request: &Request, member: &Arc<dyn Model>) -> Request {
    let known = member.card().options;
    let mut share = request.clone();
    share.options.retain(|key, _| known.contains(key));
    share
}

/// Returns the turns without recordings, and with a turn in the place of what will be heard.
fn written_turns(request: &Request, listens: bool) -> Vec<Message> {
    let text_only = |message: &Message| Message {
        role: message.role,
        parts: message.parts.iter().filter(|part| matches!(part, Part::Text(_))).cloned().collect(),
    };
    let mut turns: Vec<Message> = request.messages.iter().map(text_only).filter(|m| !m.parts.is_empty()).collect();
    if listens {
        turns.push(Message { role: Role::User, parts: vec![Part::Text("words".into())] });
    }
    turns
}

#[cfg(test)]
mod tests {

    use mstar_contract::Media;

    use super::*;
    use Modality::{Audio, Text};

    #[test]
    fn what_goes_in_and_what_is_wanted_decide_the_way() {
        let check = |task, text, audio, outputs: &[Modality], expected| {
            let outputs: BTreeSet<Modality> = outputs.iter().copied().collect();
            assert_eq!(route(task, text, audio, &outputs), expected, "{task:?} {text} {audio} {outputs:?}");
        };
        let (listening, reading) = (true, false);
        check(Task::Generate, true, false, &[Text], Route::Chat { listens: reading });
        check(Task::Generate, true, false, &[Audio], Route::Speak);
        check(Task::Generate, false, true, &[Text], Route::Transcribe);
        check(Task::Generate, true, true, &[Text], Route::Chat { listens: listening });
        check(Task::Generate, true, false, &[Text, Audio], Route::Converse { listens: reading });
        check(Task::Generate, false, true, &[Audio], Route::Converse { listens: listening });
        check(Task::Chat, false, true, &[Text], Route::Chat { listens: listening });
        check(Task::Chat, false, true, &[Text, Audio], Route::Converse { listens: listening });
        check(Task::Speak, true, false, &[Audio], Route::Speak);
        check(Task::Transcribe, false, true, &[Text], Route::Transcribe);
    }

    #[test]
    fn every_plan_goes_one_of_the_ways() {
        let recording = Media { modality: Audio, bytes: vec![0].into(), field: "files[0]".into() };
        let request = Request {
            messages: vec![Message { role: Role::User, parts: vec![Part::Text("words".into())] }],
            media: vec![recording],
            ..Request::new("r", "voice", Task::Generate)
        };
        let routes = [false, true].map(|listens| [Route::Chat { listens }, Route::Converse { listens }]);
        let routes = routes.into_iter().flatten().chain([Route::Speak, Route::Transcribe]);
        let taken = routes.map(|route| {
            let plan = VoicePlan::along(&request, route).unwrap();
            let walks = plan.begin().into_iter().map(|next| next.walk).chain(plan.follows());
            walks.collect::<BTreeSet<WalkName>>()
        });
        let ways: BTreeSet<BTreeSet<WalkName>> = ways().into_iter().map(BTreeSet::from_iter).collect();
        assert_eq!(taken.collect::<BTreeSet<_>>(), ways);
    }

    #[test]
    fn the_recording_is_in_the_last_turn_or_alone() {
        let check = |turns: &[&[Part]], expected| {
            let messages = turns.iter().map(|parts| Message { role: Role::User, parts: parts.to_vec() }).collect();
            let request = Request { messages, ..Request::new("test", "voice", Task::Chat) };
            assert_eq!(goes_on_after_recording(&request), expected, "{turns:?}");
        };
        let (said, recorded) = (Part::Text("Hi".into()), Part::Media(0));
        check(&[std::slice::from_ref(&said)], false);
        check(&[std::slice::from_ref(&said), &[said.clone(), recorded.clone()]], false);
        check(&[std::slice::from_ref(&recorded), &[]], false);
        check(&[&[recorded], &[said]], true);
    }
}
