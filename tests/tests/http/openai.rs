//! Chat completions and the list of models, as OpenAI's clients read them.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::Response;
use serde_json::{Value, json};

use crate::wire::{decode, events, header};

fn chat(more: Value) -> Value {
    let mut body = json!({
        "model": "fake", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"}],
        "temperature": 0, "max_tokens": 30,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

async fn ask(house: &House, body: &Value) -> Outcome<Response> {
    Ok(house.post("/v1/chat/completions").json(body).send().await?)
}

#[tokio::test]
async fn a_completion_and_its_chunks_tell_the_same() -> Outcome {
    let house = House::boot("").await?;
    let whole = ask(&house, &chat(json!({}))).await?.error_for_status()?;
    assert!(!header(&whole, "x-request-id").is_empty());
    let whole: Value = whole.json().await?;
    let content = whole["choices"][0]["message"]["content"].as_str().ok_or("no content")?.to_owned();
    assert!(!content.is_empty() && whole["object"] == "chat.completion" && whole["model"] == "fake");
    let finish = whole["choices"][0]["finish_reason"].as_str().ok_or("no finish reason")?;
    assert!(["stop", "length"].contains(&finish));
    let usage = &whole["usage"];
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| usage[name].as_u64().unwrap_or(0));
    assert!(counts[0] > 0 && counts[1] > 0 && counts[0] + counts[1] == counts[2], "{usage}");

    let body = chat(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let streamed = ask(&house, &body).await?.error_for_status()?;
    assert_eq!(header(&streamed, "content-type"), "text/event-stream");
    let events = events(&streamed.text().await?)?;
    let (done, chunks) = events.split_last().ok_or("no events")?;
    assert_eq!(*done, "[DONE]");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let deltas = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(deltas.collect::<String>(), content);
    let finishes: Vec<&str> = chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(finishes, [finish]);
    assert_eq!(chunks.last().ok_or("no chunks")?["usage"], *usage);
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"]));
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn bounds_and_stop_strings_end_a_completion() -> Outcome {
    let house = House::boot("").await?;
    let choice = |document: &Value| {
        let choice = &document["choices"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&choice["message"]["content"]), text(&choice["finish_reason"]))
    };
    let whole: Value = ask(&house, &chat(json!({}))).await?.json().await?;
    let (content, _) = choice(&whole);
    let short: Value =
        ask(&house, &chat(json!({"max_completion_tokens": 2, "max_tokens": null}))).await?.json().await?;
    assert_eq!((choice(&short).1.as_str(), &short["usage"]["completion_tokens"]), ("length", &2.into()));
    assert!(content.starts_with(&choice(&short).0));
    // The third word of the answer, as a stop string.
    let stop = content.split_whitespace().nth(2).ok_or("the answer is too short")?;
    let stopped: Value = ask(&house, &chat(json!({"stop": [stop]}))).await?.json().await?;
    let (text, finish) = choice(&stopped);
    assert_eq!((text.as_str(), finish.as_str()), (&content[..content.find(stop).unwrap_or(0)], "stop"));
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn several_answers_are_numbered_and_differ() -> Outcome {
    let house = House::boot("").await?;
    let body = chat(json!({"n": 3, "temperature": 1, "seed": 5}));
    let whole: Value = ask(&house, &body).await?.error_for_status()?.json().await?;
    let choices = whole["choices"].as_array().ok_or("no choices")?;
    assert_eq!(choices.iter().map(|choice| choice["index"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    assert_ne!(choices[0]["message"]["content"], choices[1]["message"]["content"]);
    let again: Value = ask(&house, &body).await?.json().await?;
    assert_eq!(again["choices"], whole["choices"], "equal seeds give equal answers");
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_spoken_answer_comes_with_its_transcript() -> Outcome {
    let house = House::boot("").await?;
    let spoken = json!({"modalities": ["text", "audio"], "audio": {"voice": "fake", "format": "wav"}});
    let whole: Value = ask(&house, &chat(spoken)).await?.error_for_status()?.json().await?;
    let audio = &whole["choices"][0]["message"]["audio"];
    let wav = decode(&audio["data"])?;
    let heard = mstar_media::decode_audio(&wav, &mstar_media::Limits::default())?;
    assert!(heard.sample_rate == 24_000 && !heard.samples.is_empty());
    let transcript = audio["transcript"].as_str().ok_or("no transcript")?;
    assert!(!transcript.is_empty());

    let body = chat(json!({
        "modalities": ["text", "audio"], "audio": {"voice": "fake", "format": "pcm16"}, "stream": true,
    }));
    let events = events(&ask(&house, &body).await?.error_for_status()?.text().await?)?;
    let deltas = events.iter().map(|event| &event["choices"][0]["delta"]["audio"]);
    let (mut text, mut pcm) = (String::new(), Vec::new());
    for delta in deltas {
        text.push_str(delta["transcript"].as_str().unwrap_or_default());
        if delta["data"].is_string() {
            pcm.extend(decode(&delta["data"])?);
        }
    }
    assert_eq!((text.as_str(), &pcm[..]), (transcript, &wav[44..]));
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_failure_before_the_first_token_has_its_own_status_also_when_streaming() -> Outcome {
    let house = House::boot("").await?;
    let body = chat(json!({"stream": true, "messages": [{"role": "user", "content": "an [error]"}]}));
    let response = ask(&house, &body).await?;
    assert_eq!(response.status().as_u16(), 500);
    assert_eq!(response.json::<Value>().await?["error"]["type"], "server_error");
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn models_are_listed_with_what_they_take_and_give() -> Outcome {
    let house = House::boot("").await?;
    let list: Value = house.get("/v1/models").await?.error_for_status()?.json().await?;
    let ids: Vec<&str> = list["data"].as_array().into_iter().flatten().filter_map(|m| m["id"].as_str()).collect();
    assert_eq!(ids, ["fake", "scribe"]);
    let one: Value = house.get("/v1/models/scribe").await?.error_for_status()?.json().await?;
    assert_eq!((&one["object"], &one["owned_by"]), (&"model".into(), &"mstar".into()));
    assert_eq!(one["input_modalities"], json!(["audio", "text"]));
    house.close().await;
    Ok(())
}
