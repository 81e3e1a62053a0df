//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use mstar_actors::Served;
use mstar_contract::{ClientEvent, Task, Usage};
use mstar_graph::Modality;
use serde_json::json;

use super::chat_answer::{Answer, Head, finish_name, usage_json};
use super::chat_parse::{ChatCall, read_chat};
use super::chunk::{ChunkChoice, Delta};
use crate::body::read_json;
use crate::budget::Held;
use crate::call::{Call, Wanted};
use crate::label::chosen_id;
use crate::streamed::{BodyWriter, DONE_EVENT, event, streamed};
use crate::{ApiError, Gateway};

/// Answers a conversation.
pub(crate) async fn complete(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let (body, held) = read_json(request, &gateway).await?;
    let chat = read_chat(&body, gateway.limits.max_output_tokens)?;
    drop(body);
    let served = Arc::clone(gateway.served(chat.model.as_deref())?);
    let head = Head::new(served.model().id().as_str(), &chat);
    let (stream, include_usage) = (chat.stream, chat.include_usage);
    let stall = gateway.limits.reader_stall;
    let answers = Answers { gateway, served, headers, chat, held };
    let first = answers.begin(0).await?;
    let labels = first.labels();
    Ok(labels(if stream {
        streamed("text/event-stream", stall, move |writer| write_stream(writer, first, answers, head, include_usage))
    } else {
        document(first, &answers, &head).await?
    }))
}

/// The answers to one call. They are requests of their own, begun one after the other: one that waits to be read
/// would hold the place and the pages that the next one waits for.
struct Answers {
    gateway: Arc<Gateway>,
    served: Arc<Served>,
    headers: HeaderMap,
    chat: ChatCall,
    held: Arc<Held>,
}

impl Answers {
    async fn begin(&self, index: u64) -> Result<Call, ApiError> {
        let wanted = Wanted { body: Some(Arc::clone(&self.held)), ..wanted(&self.chat, &self.headers, index) };
        Call::begin(&self.gateway, &self.served, &self.headers, wanted).await
    }
}

fn wanted(chat: &ChatCall, headers: &HeaderMap, index: u64) -> Wanted {
    let mut outputs = chat.outputs.clone();
    if chat.sampling.logprobs.is_some() {
        outputs.insert(Modality::Detail);
    }
    Wanted {
        // Several answers are several requests: only the first can have the client's id.
        id: chosen_id(headers).filter(|_| index == 0),
        task: Task::Chat,
        messages: chat.messages.clone(),
        media: chat.media.clone(),
        outputs,
        sampling: chat.sampling.clone(),
        // Equal seeds would give equal answers.
        seed: chat.seed.map(|seed| seed.wrapping_add(index)),
        options: chat.options.clone(),
        options_at: "audio.",
        body: None,
    }
}

async fn document(first: Call, answers: &Answers, head: &Head) -> Result<Response, ApiError> {
    let (mut choices, mut usage) = (Vec::new(), Usage::default());
    let mut first = Some(first);
    for index in 0..answers.chat.n {
        let call = match first.take() {
            Some(call) => call,
            None => answers.begin(index).await?,
        };
        let (emissions, summary) = call.collect().await?;
        let mut answer = Answer::default();
        for emission in &emissions {
            answer.take(emission);
        }
        choices.push(answer.into_choice(choices.len(), head, summary.finish)?);
        count(&mut usage, index, summary.usage);
    }
    Ok(Json(head.completion(choices, usage_json(usage))).into_response())
}

/// All answers share one prompt: it counts once.
fn count(total: &mut Usage, index: u64, usage: Usage) {
    let prompt_tokens = if index == 0 { usage.prompt_tokens } else { 0 };
    total.add(Usage { prompt_tokens, ..usage });
}

/// Writes the answers one after the other as chunks; after an error no `[DONE]` follows.
async fn write_stream(writer: BodyWriter, first: Call, answers: Answers, head: Head, include_usage: bool) {
    let mut usage = Usage::default();
    let mut first = Some(first);
    for index in 0..answers.chat.n {
        let begun = match first.take() {
            Some(call) => Ok(call),
            None => answers.begin(index).await,
        };
        let written = match begun {
            Ok(call) => write_answer(&writer, index, call, &head).await,
            Err(error) => {
                writer.send(event(&error.json())).await;
                Written::Failed
            }
        };
        match written {
            Written::Whole(used) => count(&mut usage, index, used),
            Written::Failed => return writer.finish().await,
            Written::ClientGone => return,
        }
    }
    if include_usage && !writer.send(head.chunk(&[], Some(usage_json(usage)))).await {
        return;
    }
    if writer.send(DONE_EVENT).await {
        writer.finish().await;
    }
}

/// How far an answer was written.
enum Written {
    Whole(Usage),
    Failed,
    ClientGone,
}

async fn write_answer(writer: &BodyWriter, index: u64, mut call: Call, head: &Head) -> Written {
    let role = ChunkChoice::new(index, Delta::Other(json!({"role": "assistant", "content": ""})));
    if !writer.send(head.chunk(&[role], None)).await {
        return Written::ClientGone;
    }
    while let Some(next) = writer.next_of(&mut call).await {
        let (piece, written) = match next {
            ClientEvent::Emitted(emission) => match head.choice(index, &emission) {
                Some(choice) => (head.chunk(&[choice], None), None),
                None => continue,
            },
            ClientEvent::Done(summary) => {
                let finish_reason = Some(finish_name(summary.finish));
                let last = ChunkChoice { finish_reason, ..ChunkChoice::new(index, head.last_delta()) };
                (head.chunk(&[last], None), Some(Written::Whole(summary.usage)))
            }
            ClientEvent::Failed(failure) => (event(&call.error(failure).json()), Some(Written::Failed)),
        };
        if !writer.send(piece).await {
            return Written::ClientGone;
        }
        if let Some(written) = written {
            return written;
        }
    }
    Written::ClientGone
}
