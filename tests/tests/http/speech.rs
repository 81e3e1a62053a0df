//! Speech in every format, whole and streamed, and what happens when it fails on the way.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::Response;
use serde_json::{Value, json};

use crate::wire::{body_and_end, decode, events, header};

const TEXT: &str = "One sentence. And another one!";

async fn speak(house: &House, more: Value) -> Outcome<Response> {
    let mut body = json!({"model": "fake", "voice": "fake", "input": TEXT});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    Ok(house.post("/v1/audio/speech").json(&body).send().await?)
}

async fn bytes(house: &House, more: Value) -> Outcome<Vec<u8>> {
    Ok(speak(house, more).await?.error_for_status()?.bytes().await?.to_vec())
}

#[tokio::test]
async fn every_format_holds_the_same_samples() -> Outcome {
    let house = House::boot("").await?;
    let pcm = bytes(&house, json!({"response_format": "pcm"})).await?;
    assert!(pcm.len() > TEXT.len());
    let wav = bytes(&house, json!({})).await?;
    assert_eq!((&wav[..4], &wav[44..]), (&b"RIFF"[..], &pcm[..]));
    let flac = bytes(&house, json!({"response_format": "flac"})).await?;
    let heard = mstar_media::decode_audio(&flac, &mstar_media::Limits::default())?;
    assert_eq!((heard.sample_rate, mstar_media::pcm16_bytes(&heard.samples)), (24_000, pcm.clone()));
    for format in ["pcm", "wav"] {
        let body = speak(&house, json!({"stream_format": "sse", "response_format": format})).await?;
        let events = events(&body.error_for_status()?.text().await?)?;
        let (done, deltas) = events.split_last().ok_or("no events")?;
        assert_eq!(done["type"], "speech.audio.done");
        let mut audio = Vec::new();
        for delta in deltas {
            assert_eq!(delta["type"], "speech.audio.delta");
            audio.extend(decode(&delta["audio"])?);
        }
        let header = if format == "wav" { 44 } else { 0 };
        assert_eq!(audio[header..], pcm[..], "{format}");
    }
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn speech_that_fails_on_the_way_is_no_success() -> Outcome {
    let house = House::boot("").await?;
    let audio = speak(&house, json!({"model": "scribe", "response_format": "pcm"})).await?;
    assert_eq!((audio.status().as_u16(), header(&audio, "content-type").as_str()), (200, "audio/pcm"));
    let (begun, end) = body_and_end(audio).await;
    assert!(!begun.is_empty() && end.is_err(), "the body must break off");
    let sse = speak(&house, json!({"model": "scribe", "stream_format": "sse"})).await?;
    let (body, end) = body_and_end(sse).await;
    assert!(end.is_ok(), "an event tells the error: {end:?}");
    let events = events(std::str::from_utf8(&body)?)?;
    let last = events.last().ok_or("no events")?;
    assert_eq!(last["error"]["code"], "internal");
    assert!(events.iter().all(|event| event["type"] != "speech.audio.done"));
    let flac = speak(&house, json!({"model": "scribe", "response_format": "flac"})).await?;
    assert_eq!(flac.status().as_u16(), 500);
    house.works().await?;
    house.idle().await?;
    house.close().await;
    Ok(())
}
