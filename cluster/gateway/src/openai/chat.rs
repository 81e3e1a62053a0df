//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use mstar_contract::{ClientEvent, Task, Usage};
use mstar_graph::Modality;
use serde_json::{Value, json};

use super::chat_answer::{Answer, Head, choice, usage_json};
use super::chat_parse::{ChatCall, read_chat};
use crate::body::read_json;
use crate::call::{BodyWriter, Call, DONE_EVENT, Wanted, event, label, streamed};
use crate::{ApiError, Gateway};

/// Answers a conversation.
pub async fn complete(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let body = read_json(request, gateway.limits.body_bytes).await?;
    let chat = read_chat(&body, gateway.limits.max_output_tokens)?;
    let served = gateway.served(chat.model.as_deref())?;
    let head = Head::new(served.model.id().as_str(), &chat);
    let mut calls = Vec::new();
    for index in 0..chat.n {
        calls.push(Call::begin(&gateway, served, &headers, wanted(&chat, &headers, index)).await?);
    }
    let Some((id, trace)) = calls.first().map(|call| (Arc::clone(call.id()), call.trace())) else {
        return Err(ApiError::field("n", "must be at least 1"));
    };
    let mut response = if chat.stream {
        let include_usage = chat.include_usage;
        streamed("text/event-stream", move |writer| write_stream(writer, calls, head, include_usage))
    } else {
        document(calls, &head).await?
    };
    label(&mut response, &id, trace);
    Ok(response)
}

fn wanted(chat: &ChatCall, headers: &HeaderMap, index: u64) -> Wanted {
    let chosen = headers.get("x-request-id").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut outputs = chat.outputs.clone();
    if chat.sampling.logprobs.is_some() {
        outputs.insert(Modality::Detail);
    }
    Wanted {
        // Several answers are several requests: only the first can have the client's id.
        id: chosen.filter(|_| index == 0),
        task: Task::Chat,
        messages: chat.messages.clone(),
        media: chat.media.clone(),
        outputs,
        sampling: chat.sampling.clone(),
        // Equal seeds would give equal answers.
        seed: chat.seed.map(|seed| seed.wrapping_add(index)),
        options: chat.options.clone(),
    }
}

async fn document(calls: Vec<Call>, head: &Head) -> Result<Response, ApiError> {
    let (mut choices, mut usage) = (Vec::new(), Usage::default());
    for (index, call) in calls.into_iter().enumerate() {
        let (emissions, summary) = call.collect().await?;
        let mut answer = Answer::default();
        for emission in &emissions {
            answer.take(emission);
        }
        choices.push(answer.into_choice(index, head, summary.finish)?);
        count(&mut usage, index, summary.usage);
    }
    Ok(Json(head.document("chat.completion", choices, Some(usage_json(usage)))).into_response())
}

/// All answers share one prompt: it counts once.
fn count(total: &mut Usage, index: usize, usage: Usage) {
    let prompt_tokens = if index == 0 { usage.prompt_tokens } else { 0 };
    total.add(Usage { prompt_tokens, ..usage });
}

async fn write_stream(writer: BodyWriter, calls: Vec<Call>, head: Head, include_usage: bool) {
    let mut usage = Usage::default();
    for (index, mut call) in calls.into_iter().enumerate() {
        let first = head.document("chat.completion.chunk", vec![choice(index, json!({"role": "assistant", "content": ""}), None)], None);
        if !writer.send(event(&first)).await {
            return;
        }
        loop {
            let next = tokio::select! {
                next = call.next() => next,
                () = writer.closed() => return,
            };
            let delta = match next {
                ClientEvent::Emitted(emission) => match head.delta(&emission) {
                    Some(delta) => choice(index, delta.0, delta.1),
                    None => continue,
                },
                ClientEvent::Done(summary) => {
                    count(&mut usage, index, summary.usage);
                    let mut last = choice(index, json!({}), None);
                    last["finish_reason"] = json!(super::chat_answer::finish_name(summary.finish));
                    if !writer.send(event(&head.document("chat.completion.chunk", vec![last], None))).await {
                        return;
                    }
                    break;
                }
                ClientEvent::Failed(failure) => {
                    // The last event tells the error; without [DONE] nobody takes it for a success.
                    writer.send(event(&ApiError::from(failure).json())).await;
                    return;
                }
            };
            if !writer.send(event(&head.document("chat.completion.chunk", vec![delta], None))).await {
                return;
            }
        }
    }
    if include_usage {
        let last: Value = head.document("chat.completion.chunk", vec![], Some(usage_json(usage)));
        if !writer.send(event(&last)).await {
            return;
        }
    }
    writer.send(DONE_EVENT).await;
}
