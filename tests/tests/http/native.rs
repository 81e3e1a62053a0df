//! The native endpoint: stream and document tell the same; a failure is told by its own status while nothing was
//! sent, afterwards by an error line and a body that breaks off.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use serde_json::Value;

use crate::wire::{Line, body_and_end, decode, header, joined, lines};

const CONVERSE: &str = r#"{"walk": "converse", "temperature": 0, "max_output_tokens": 40}"#;

/// Returns the lines of a document.
fn entries(document: &Value) -> Outcome<Vec<Line>> {
    let outputs = document["outputs"].as_object().ok_or("no outputs")?;
    let mut lines = Vec::new();
    for (modality, entries) in outputs {
        for entry in entries.as_array().ok_or("entries are no list")? {
            let metadata = entry["metadata"].clone();
            lines.push(Line { modality: modality.clone(), bytes: decode(&entry["data"])?, metadata });
        }
    }
    Ok(lines)
}

#[tokio::test]
async fn a_stream_and_a_document_tell_the_same() -> Outcome {
    let house = House::boot("").await?;
    let fields = |streaming| {
        [("text", "tell me"), ("output_modalities", "text,audio"), ("model_kwargs", CONVERSE), ("streaming", streaming)]
    };
    let streamed = house.generate(&fields("true")).await?.error_for_status()?;
    assert_eq!(header(&streamed, "content-type"), "application/x-ndjson");
    assert!(!header(&streamed, "x-request-id").is_empty());
    let streamed = lines(&streamed.bytes().await?)?;
    let document = house.generate(&fields("false")).await?.error_for_status()?;
    let id = header(&document, "x-request-id");
    let document: Value = document.json().await?;
    assert_eq!(document["request_id"], *id);
    let whole = entries(&document)?;
    for modality in ["text", "audio"] {
        assert!(!joined(&streamed, modality).is_empty(), "no {modality}");
        assert_eq!(joined(&streamed, modality), joined(&whole, modality), "{modality}");
    }
    let spoken = streamed.iter().find(|line| line.modality == "audio").ok_or("no audio")?;
    assert_eq!((&spoken.metadata["sample_rate"], &spoken.metadata["num_channels"]), (&24_000.into(), &1.into()));
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn only_wanted_outputs_are_sent_and_every_piece_of_text_is_utf8() -> Outcome {
    let house = House::boot("").await?;
    let mut text = String::new();
    for seed in 0..12 {
        let kwargs = format!(r#"{{"walk": "converse", "seed": {seed}, "max_output_tokens": 200}}"#);
        let fields = [("text", "sing"), ("output_modalities", "text"), ("model_kwargs", &kwargs)];
        for line in lines(&house.generate(&fields).await?.error_for_status()?.bytes().await?)? {
            assert_eq!(line.modality, "text");
            text.push_str(std::str::from_utf8(&line.bytes)?);
        }
    }
    // The fake language has a character that takes two tokens.
    assert!(text.contains('\u{1f980}'), "{text}");
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn an_early_failure_has_a_status_and_a_late_one_breaks_the_body_off() -> Outcome {
    let house = House::boot("").await?;
    let speak = |text| [("text", text), ("output_modalities", "audio"), ("model", "fake")];
    for text in ["[error] at once.", "[panic] at once."] {
        let early = house.generate(&speak(text)).await?;
        assert_eq!(early.status().as_u16(), 500, "{text}");
        assert!(!header(&early, "x-request-id").is_empty(), "an error of a request names it");
        assert_eq!(early.json::<Value>().await?["error"]["code"], "internal");
    }
    let late = house.generate(&[("text", "speak"), ("output_modalities", "audio"), ("model", "scribe")]).await?;
    assert_eq!(late.status().as_u16(), 200);
    let (body, end) = body_and_end(late).await;
    assert!(end.is_err(), "the body must break off");
    let lines = lines(&body)?;
    assert!(!joined(&lines, "audio").is_empty());
    let last = lines.last().ok_or("no line")?;
    assert_eq!((last.modality.as_str(), &last.metadata["code"]), ("error", &"internal".into()));
    house.works().await?;
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn the_client_s_trace_comes_back_with_its_request() -> Outcome {
    let house = House::boot("").await?;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let fields = [("text", "hi"), ("model_kwargs", r#"{"walk": "echo"}"#), ("request_id", "mine-1")];
    let response = house.post("/generate").header("traceparent", trace).form(&fields).send().await?;
    assert_eq!(header(&response, "x-request-id"), "mine-1");
    assert_eq!(header(&response, "traceparent")[..35], trace[..35]);
    house.close().await;
    Ok(())
}
