//! What requests have in memory is bounded in sum, from their arrival to their end, and whoever sends slowly does not
//! hold others up.

use std::sync::Arc;
use std::time::Duration;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::StatusCode;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use crate::raw::{answer, asked, chunked_head, head, sent};
use crate::wire::{header, tone};

/// Room for two bodies of the largest size.
const TIGHT: &str = "[limits]\nbody_bytes = \"256KiB\"\nretry_after_s = 9\n[http]\nbodies_bytes = \"512KiB\"\n";

/// Returns a form that `scribe` holds up at its gate.
fn held_up(bytes: usize) -> String {
    let fields = "model=scribe&streaming=false&text=";
    format!("{fields}{}", "x".repeat(bytes - fields.len()))
}

#[track_caller]
fn finds_no_room(answer: &str) {
    let answer = answer.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 9\r\n"), "{answer}");
    assert!(answer.contains(r#""code":"overloaded""#) && answer.contains(r#""param":"body""#), "{answer}");
}

#[tokio::test]
async fn requests_that_wait_keep_their_bytes_and_others_are_told_to_come_again() -> Outcome {
    let house = House::boot(TIGHT).await?;
    let size = 200 << 10;
    let form = format!("{}{}", head(size), held_up(size));
    let (first, second) = (sent(&house, form.as_bytes()).await?, sent(&house, form.as_bytes()).await?);
    house.until("both at the gate", |view| requests(view) == 2).await?;
    assert_eq!(house.cluster.gateway().bodies.taken(), 2 * size);

    finds_no_room(&asked(&house, form.as_bytes()).await?);
    // Without an announced length it is refused on the way.
    let chunk = format!("{:x}\r\n{}\r\n", size, held_up(size));
    finds_no_room(&asked(&house, format!("{}{chunk}", chunked_head()).as_bytes()).await?);
    let document = json!({"model": "fake", "input": "x".repeat(150 << 10)});
    let refused = house.post("/v1/audio/speech").json(&document).send().await?;
    assert_eq!((refused.status(), header(&refused, "retry-after").as_str()), (StatusCode::SERVICE_UNAVAILABLE, "9"));
    // There is room for small ones.
    house.works().await?;

    house.gate.open();
    for served in [first, second] {
        let served = answer(served).await?;
        assert!(served.starts_with("HTTP/1.1 200"), "{}", &served[..200.min(served.len())]);
    }
    house.idle().await?;
    let again = asked(&house, form.as_bytes()).await?;
    assert!(again.starts_with("HTTP/1.1 200"));
    house.idle().await?;
    house.close().await;
    Ok(())
}

fn requests(view: &Value) -> u64 {
    let running = view["requests"]["running"].as_array().map_or(0, Vec::len);
    running as u64 + view["requests"]["queued"].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn an_announced_body_takes_no_room_before_it_comes() -> Outcome {
    let house = House::boot(TIGHT).await?;
    let mut announced = Vec::new();
    for _ in 0..20 {
        announced.push(sent(&house, format!("{}text=", head(250 << 10)).as_bytes()).await?);
    }
    let size = 200 << 10;
    house.gate.open();
    let served = asked(&house, format!("{}{}", head(size), held_up(size)).as_bytes()).await?;
    assert!(served.starts_with("HTTP/1.1 200"), "{}", &served[..200.min(served.len())]);
    drop(announced);
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn many_uploads_at_once_stay_within_their_bytes_and_some_are_served() -> Outcome {
    let house = Arc::new(House::boot(TIGHT).await?);
    let recording = tone(6.0);
    assert!((150 << 10..256 << 10).contains(&recording.len()));
    let mut clients = JoinSet::new();
    for _ in 0..40 {
        let (house, recording) = (Arc::clone(&house), recording.clone());
        clients.spawn(async move {
            let file = Part::bytes(recording).file_name("tone.wav").mime_str("audio/wav")?;
            let form = Form::new().text("model", "scribe").part("file", file);
            let response = house.post("/v1/audio/transcriptions").multipart(form).send().await?;
            assert!(house.cluster.gateway().bodies.taken() <= 512 << 10);
            Outcome::Ok((response.status(), header(&response, "retry-after"), response.json::<Value>().await?))
        });
    }
    let mut served = 0;
    while let Some(client) = clients.join_next().await {
        let (status, retry, document) = client??;
        if status == StatusCode::OK {
            assert_eq!(document["text"], "I heard 6.00 seconds.");
            served += 1;
        } else {
            assert_eq!((status, retry.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "9"), "{document}");
        }
    }
    assert!(served > 0);
    house.idle().await
}

#[tokio::test]
async fn a_body_that_stops_coming_is_given_up_and_its_bytes_with_it() -> Outcome {
    let house = House::boot("[http]\nbody_stall_s = 0.3\n").await?;
    let whole = sent(&house, format!("{}text=abc", head(1000)).as_bytes()).await?;
    let mut form = sent(&house, format!("{}5\r\ntext=\r\n", chunked_head()).as_bytes()).await?;
    form.write_all(b"3\r\nab").await?;
    let multipart = "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
        content-type: multipart/form-data; boundary=edge\r\ntransfer-encoding: chunked\r\n\r\n6\r\n--edge\r\n";
    for slow in [whole, form, sent(&house, multipart.as_bytes()).await?] {
        let answer = answer(slow).await?;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains(r#""code":"deadline""#) && answer.contains(r#""param":"body""#), "{answer}");
    }
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up_when_its_time_is_over() -> Outcome {
    let house = House::boot("[http]\nbody_timeout_s = 0.5\n").await?;
    let (read, mut write) = sent(&house, chunked_head().as_bytes()).await?.into_split();
    let trickle = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        while write.write_all(b"1\r\nx\r\n").await.is_ok() {
            ticks.tick().await;
        }
    });
    let answer = answer(read).await?;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("did not come in time"), "{answer}");
    trickle.abort();
    house.idle().await?;
    house.close().await;
    Ok(())
}
