//! Malformed requests, table by table: each is refused with the right status and the name of the field at fault, and
//! the next good request works.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::raw::{answer, sent};

/// A request that must be refused.
pub(crate) struct Bad {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
    pub(crate) param: &'static str,
}

/// Sends every request and checks what is said of it.
pub(crate) async fn refused(house: &House, table: Vec<Bad>) -> Outcome {
    for bad in table {
        let shown = String::from_utf8_lossy(&bad.body[..bad.body.len().min(200)]).into_owned();
        let mut request = house.post(bad.path).body(bad.body);
        if !bad.content_type.is_empty() {
            request = request.header("content-type", bad.content_type);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let error: Value = response.json().await?;
        assert_eq!(status, bad.status, "{} {shown}: {error}", bad.path);
        assert_eq!(error["error"]["param"], bad.param, "{} {shown}: {error}", bad.path);
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(bad.param), "{} {shown}: the message does not name the field: {message}", bad.path);
        assert!(error["error"]["type"].is_string() && error["error"]["code"].is_string(), "{error}");
        house.works().await?;
    }
    house.idle().await
}

fn json_body(path: &'static str, body: impl Into<Vec<u8>>, status: u16, param: &'static str) -> Bad {
    Bad { path, content_type: "application/json", body: body.into(), status, param }
}

const CHAT: &str = "/v1/chat/completions";
const SPEECH: &str = "/v1/audio/speech";

#[tokio::test]
async fn bodies_that_are_no_json_are_refused() -> Outcome {
    let house = House::boot("[limits]\nbody_bytes = \"64KiB\"\n").await?;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let good = br#"{"messages": [{"role": "user", "content": "hi"}]}"#;
    let plain =
        |content_type| Bad { path: CHAT, content_type, body: good.to_vec(), status: 415, param: "content-type" };
    let table = vec![
        json_body(CHAT, "", 400, "body"),
        json_body(CHAT, "{", 400, "body"),
        json_body(CHAT, &b"{\"messages\": \"\xff\xfe\"}"[..], 400, "body"),
        json_body(CHAT, deep, 400, "body"),
        json_body(CHAT, "[1, 2]", 422, "body"),
        json_body(CHAT, "\"hello\"", 422, "body"),
        json_body(CHAT, r#"{"temperature": 1e999}"#, 400, "body"),
        json_body(CHAT, r#"{"messages": [{"role": "user", "content": "\ud800"}]}"#, 400, "body"),
        json_body(CHAT, r#"{"model": "fake"} trailing"#, 400, "body"),
        json_body(CHAT, format!("{{\"pad\": \"{}\"}}", "x".repeat(70_000)), 413, "body"),
        plain(""),
        plain("text/plain"),
        plain("application/x-www-form-urlencoded"),
        plain("application/jsonp; charset=utf-8"),
    ];
    refused(&house, table).await?;
    house.close().await;
    Ok(())
}

/// A conversation of one turn with this content.
fn turn(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[tokio::test]
async fn turns_that_are_none_are_refused() -> Outcome {
    let house = House::boot("").await?;
    let part = |part: Value| turn(json!([part]));
    let table: Vec<(Value, u16, &'static str)> = vec![
        (json!({}), 422, "messages"),
        (json!({"messages": "hi"}), 422, "messages"),
        (json!({"messages": []}), 422, "messages"),
        (json!({"messages": [7]}), 422, "messages[0]"),
        (json!({"messages": [{"content": "x"}]}), 422, "messages[0].role"),
        (json!({"messages": [{"role": 1, "content": "x"}]}), 422, "messages[0].role"),
        (json!({"messages": [{"role": "king", "content": "x"}]}), 422, "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), 422, "messages[0].content"),
        (turn(json!(5)), 422, "messages[0].content"),
        (part(json!("text")), 422, "messages[0].content[0]"),
        (part(json!({"type": "smell"})), 422, "messages[0].content[0].type"),
        (part(json!({"type": "text", "text": 5})), 422, "messages[0].content[0].text"),
        (part(json!({"type": "input_audio"})), 422, "messages[0].content[0].input_audio"),
        (
            part(json!({"type": "input_audio", "input_audio": {"data": "%%%", "format": "wav"}})),
            422,
            "messages[0].content[0].input_audio.data",
        ),
        (
            part(json!({"type": "input_audio", "input_audio": {"data": "", "format": "exe"}})),
            422,
            "messages[0].content[0].input_audio.format",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "http://localhost/a.png"}})),
            422,
            "messages[0].content[0].image_url.url",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@"}})),
            422,
            "messages[0].content[0].image_url.url",
        ),
    ];
    let table = table.into_iter().map(|(body, status, param)| json_body(CHAT, body.to_string(), status, param));
    refused(&house, table.collect()).await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn chat_fields_of_wrong_types_and_ranges_are_refused() -> Outcome {
    let house = House::boot("").await?;
    let with = |name: &str, value: Value| {
        let mut body = turn(json!("hi"));
        body[name] = value;
        body
    };
    let table: Vec<(Value, u16, &'static str)> = vec![
        (with("model", json!("gpt-9")), 404, "model"),
        (with("model", json!(7)), 422, "model"),
        (with("temperature", json!("hot")), 422, "temperature"),
        (with("temperature", json!(9)), 422, "temperature"),
        (with("top_p", json!(-1)), 422, "top_p"),
        (with("n", json!(0)), 422, "n"),
        (with("n", json!(1000)), 422, "n"),
        (with("max_tokens", json!(0)), 422, "max_tokens"),
        (with("max_tokens", json!(1_000_000_000_000_u64)), 422, "max_tokens"),
        (with("max_completion_tokens", json!(2.5)), 422, "max_completion_tokens"),
        (with("stop", json!([1])), 422, "stop[0]"),
        (with("stop", json!("")), 422, "stop[0]"),
        (with("stop", json!(vec!["x"; 100])), 422, "stop"),
        (with("logit_bias", json!({"word": 1})), 422, "logit_bias.word"),
        (with("logit_bias", json!({"7": 1000})), 422, "logit_bias.7"),
        (with("logprobs", json!("yes")), 422, "logprobs"),
        (with("top_logprobs", json!(3)), 422, "top_logprobs"),
        (with("seed", json!(-1)), 422, "seed"),
        (with("seed", json!(1.5)), 422, "seed"),
        (with("stream", json!("yes")), 422, "stream"),
        (with("stream_options", json!({"include_usage": 1})), 422, "stream_options.include_usage"),
        (with("stream_options", json!({"speed": 1})), 422, "stream_options.speed"),
        (with("modalities", json!(["smell"])), 422, "modalities[0]"),
        (with("audio", json!({"voice": "x"})), 422, "audio"),
        (with("response_format", json!({"type": "json_object"})), 422, "response_format.type"),
        (with("tools", json!([])), 422, "tools"),
        (with("temprature", json!(1)), 422, "temprature"),
    ];
    let table = table.into_iter().map(|(body, status, param)| json_body(CHAT, body.to_string(), status, param));
    refused(&house, table.collect()).await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn speech_fields_are_refused_by_name() -> Outcome {
    let house = House::boot("").await?;
    let table: Vec<(Value, &'static str)> = vec![
        (json!({}), "input"),
        (json!({"input": ["a"]}), "input"),
        (json!({"input": "  "}), "input"),
        (json!({"input": "x".repeat(200_000)}), "input"),
        (json!({"input": "a", "response_format": "mp9"}), "response_format"),
        (json!({"input": "a", "response_format": "flac", "stream_format": "sse"}), "response_format"),
        (json!({"input": "a", "stream_format": "carrier pigeon"}), "stream_format"),
        (json!({"input": "a", "speed": 100}), "speed"),
        (json!({"input": "a", "voice": 5}), "voice"),
        (json!({"input": "a", "volume": 11}), "volume"),
    ];
    let table = table.into_iter().map(|(body, param)| json_body(SPEECH, body.to_string(), 422, param));
    refused(&house, table.collect()).await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn paths_methods_and_ids_that_are_not_there_are_refused() -> Outcome {
    let house = House::boot("").await?;
    let table = [
        (Method::GET, "/v1/nothing", 404, "path"),
        (Method::GET, "/v1/chat/completions", 405, "method"),
        (Method::GET, "/v1/models/nobody", 404, "model"),
        (Method::DELETE, "/v1/requests/nobody", 404, "id"),
        (Method::GET, "/admin/requests/nobody", 404, "id"),
        (Method::PUT, "/healthz", 405, "method"),
    ];
    for (method, path, status, param) in table {
        let response = house.http().request(method.clone(), house.url(path)).send().await?;
        assert_eq!(response.status().as_u16(), status, "{method} {path}");
        assert_eq!(response.json::<Value>().await?["error"]["param"], param, "{method} {path}");
    }
    let chat = json!({"messages": [{"role": "user", "content": "hi"}]});
    let strange = house.post(CHAT).header("x-request-id", "a b/c").json(&chat).send().await?;
    assert_eq!(strange.status().as_u16(), 422);
    assert_eq!(strange.json::<Value>().await?["error"]["param"], "request_id");
    house.works().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn what_is_no_http_does_not_harm() -> Outcome {
    let house = House::boot("[limits]\nbody_bytes = \"1KiB\"\n").await?;
    let garbage = answer(sent(&house, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await?).await?;
    assert!(garbage.starts_with("HTTP/1.1 400"), "{garbage}");
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let mut short = sent(&house, format!("{head}content-length: 500\r\n\r\n{{\"messages\"").as_bytes()).await?;
    short.shutdown().await?;
    let short = answer(short).await?;
    assert!(short.is_empty() || short.starts_with("HTTP/1.1 400"), "{short}");
    let huge = answer(sent(&house, format!("{head}content-length: 99999999999\r\n\r\n").as_bytes()).await?).await?;
    assert!(huge.starts_with("HTTP/1.1 413"), "{huge}");
    // Without an announced length the limit holds just so.
    let chunk = format!("800\r\n{}\r\n", " ".repeat(0x800));
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    let chunked = answer(sent(&house, chunked.as_bytes()).await?).await?;
    assert!(chunked.starts_with("HTTP/1.1 413"), "{chunked}");
    house.works().await?;
    house.idle().await?;
    house.close().await;
    Ok(())
}
