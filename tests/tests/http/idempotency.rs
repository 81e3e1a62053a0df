//! A request id runs once: the same id attaches to the running request or is refused, and is free again afterwards.

use std::sync::Arc;

use mstar_actors::Submit;
use mstar_contract::{Message, Part, Request, Role, Task, TraceContext};
use mstar_graph::Modality;
use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::wire::{joined, lines};

type Asked = JoinHandle<reqwest::Result<Response>>;

fn ask(house: &Arc<House>, text: &'static str, streaming: &'static str) -> Asked {
    let house = Arc::clone(house);
    let fields = [("text", text), ("model", "scribe"), ("request_id", "once"), ("streaming", streaming)];
    tokio::spawn(async move { house.post("/generate").form(&fields).send().await })
}

/// Checks that an answer says that the request's id is taken, and returns how.
async fn in_conflict(answer: Response, code: &str) -> Outcome<String> {
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    let error: Value = answer.json().await?;
    assert_eq!((&error["error"]["param"], &error["error"]["code"]), (&"request_id".into(), &code.into()));
    Ok(error["error"]["message"].to_string())
}

fn runs(view: &Value) -> bool {
    view["requests"]["running"][0]["id"] == "once"
}

#[tokio::test]
async fn the_same_id_gets_the_running_request_s_result() -> Outcome {
    let house = Arc::new(House::boot("").await?);
    let first = ask(&house, "first", "true");
    house.until("running", runs).await?;
    let (second, third) = (ask(&house, "first", "false"), ask(&house, "first", "true"));
    // Another endpoint knows no attaching: there the id is taken.
    let chat = json!({"messages": [{"role": "user", "content": "x"}]});
    let taken = house.post("/v1/chat/completions").header("x-request-id", "once").json(&chat).send().await?;
    in_conflict(taken, "request_id_in_use").await?;
    // The same id for something else is a mistake of the client's, told at once.
    let told = in_conflict(ask(&house, "something else", "true").await??, "request_id_reused").await?;
    assert!(told.contains("another text"), "{told}");
    house.attached("once", 2).await?;
    house.gate.open();
    let streamed = lines(&first.await??.error_for_status()?.bytes().await?)?;
    assert_eq!(joined(&streamed, "text"), b"first");
    let document: Value = second.await??.error_for_status()?.json().await?;
    // "first" in base64.
    assert_eq!(
        (&document["request_id"], &document["outputs"]["text"][0]["data"]),
        (&"once".into(), &"Zmlyc3Q=".into())
    );
    assert_eq!(lines(&third.await??.error_for_status()?.bytes().await?)?, streamed);
    assert_eq!(house.view().await?["requests"]["admitted"], 1, "it must have run once");

    let again: Value = ask(&house, "again", "false").await??.error_for_status()?.json().await?;
    // "again" in base64.
    assert_eq!(again["outputs"]["text"][0]["data"], "YWdhaW4=");
    house.idle().await
}

#[tokio::test]
async fn who_is_attached_hears_that_the_running_request_was_given_up() -> Outcome {
    let house = Arc::new(House::boot("").await?);
    let first = ask(&house, "first", "false");
    house.until("running", runs).await?;
    let second = ask(&house, "first", "false");
    house.attached("once", 1).await?;
    first.abort();
    let told = second.await??;
    assert_eq!(told.status(), StatusCode::from_u16(499)?);
    house.gate.open();
    house.idle().await
}

#[tokio::test]
async fn an_id_whose_request_has_not_ended_yet_is_in_conflict_also_when_its_client_is_gone() -> Outcome {
    let house = Arc::new(House::boot("").await?);
    // The gateway knows nothing of this request, as of one whose client has just left.
    let served = house.cluster.served("scribe").ok_or("no scribe")?;
    let message = Message { role: Role::User, parts: vec![Part::Text("left behind".into())] };
    let request = Arc::new(Request {
        messages: vec![message],
        outputs: [Modality::Text].into(),
        ..Request::new("once", "scribe", Task::Generate)
    });
    let submit = Submit { request, served: Arc::clone(served), deadline: None, trace: TraceContext::default() };
    let left = house.cluster.ingress().submit(submit).await.map_err(|failure| failure.to_string())?;
    in_conflict(ask(&house, "again", "false").await??, "request_id_in_use").await?;
    drop(left);
    house.gate.open();
    house.idle().await?;
    ask(&house, "again", "false").await??.error_for_status()?;
    house.idle().await
}
