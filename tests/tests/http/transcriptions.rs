//! Transcriptions in every format.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::Response;
use reqwest::multipart::{Form, Part};
use serde_json::Value;

use crate::wire::{events, header, tone};

async fn transcribe(house: &House, fields: &[(&'static str, &'static str)]) -> Outcome<Response> {
    let file = Part::bytes(tone(1.5)).file_name("tone.wav").mime_str("audio/wav")?;
    let form = Form::new().text("model", "scribe").part("file", file);
    let form = fields.iter().fold(form, |form, (name, value)| form.text(*name, *value));
    Ok(house.post("/v1/audio/transcriptions").multipart(form).send().await?.error_for_status()?)
}

#[tokio::test]
async fn every_format_tells_the_same() -> Outcome {
    let house = House::boot("").await?;
    let text = "I heard 1.50 seconds.";
    let json: Value = transcribe(&house, &[]).await?.json().await?;
    assert_eq!(json["text"], text);
    let plain = transcribe(&house, &[("response_format", "text")]).await?;
    assert_eq!(header(&plain, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(plain.text().await?, format!("{text}\n"));
    let granular = [("response_format", "verbose_json"), ("timestamp_granularities[]", "segment")];
    let verbose: Value = transcribe(&house, &granular).await?.json().await?;
    assert_eq!(
        (&verbose["text"], &verbose["language"], &verbose["duration"]),
        (&text.into(), &"en".into(), &1.5.into())
    );
    assert_eq!((&verbose["segments"][0]["id"], &verbose["segments"][0]["end"]), (&0.into(), &1.5.into()));
    let srt = transcribe(&house, &[("response_format", "srt")]).await?.text().await?;
    assert_eq!(srt, format!("1\n00:00:00,000 --> 00:00:01,500\n{text}\n\n"));
    let vtt = transcribe(&house, &[("response_format", "vtt")]).await?.text().await?;
    assert_eq!(vtt, format!("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n{text}\n\n"));
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_streamed_transcription_ends_with_the_whole_text() -> Outcome {
    let house = House::boot("").await?;
    let body = transcribe(&house, &[("stream", "true")]).await?.text().await?;
    let events = events(&body)?;
    let [deltas @ .., done, end] = &events[..] else { return Err("too few events".into()) };
    assert_eq!(*end, "[DONE]");
    let joined: String = deltas.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert!(deltas.iter().all(|event| event["type"] == "transcript.text.delta"));
    assert_eq!((&done["type"], &done["text"]), (&"transcript.text.done".into(), &joined.trim().into()));
    house.close().await;
    Ok(())
}
