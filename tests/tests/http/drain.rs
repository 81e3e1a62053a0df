//! While a server drains, clients and load balancers are told so; whatever runs ends well.

use std::sync::Arc;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::wire::header;

/// Begins a request that waits at the gate.
async fn waiting(house: &Arc<House>) -> Outcome<tokio::task::JoinHandle<reqwest::Result<reqwest::Response>>> {
    let body = json!({"model": "scribe", "messages": [{"role": "user", "content": "let me finish"}]});
    let sender = Arc::clone(house);
    let running = tokio::spawn(async move { sender.post("/v1/chat/completions").json(&body).send().await });
    house.until("running", |view| view["requests"]["running"][0].is_object()).await?;
    Ok(running)
}

async fn refuses_and_says_so(house: &House) -> Outcome {
    for path in ["/generate", "/v1/chat/completions", "/v1/audio/speech", "/v1/audio/transcriptions"] {
        let refused = house.post(path).body("whatever").send().await?;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!((header(&refused, "retry-after"), header(&refused, "connection")), ("3".into(), "close".into()));
        assert_eq!(refused.json::<Value>().await?["error"]["code"], "draining");
    }
    for (path, status) in [("/readyz", 503), ("/health", 503), ("/healthz", 200), ("/metrics", 200)] {
        let told = house.get(path).await?;
        assert_eq!(told.status().as_u16(), status, "{path}");
        assert_eq!(header(&told, "retry-after"), if status == 503 { "3" } else { "" }, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_ends_answers_until_its_requests_have_ended() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nretry_after_s = 3\n").await?);
    let running = waiting(&house).await?;
    let drained = {
        let house = Arc::clone(&house);
        tokio::spawn(async move { house.cluster.drain(|_| {}).await })
    };
    house.until("draining", |view| view["draining"] == true).await?;
    refuses_and_says_so(&house).await?;
    house.gate.open();
    let answer: Value = running.await??.error_for_status()?.json().await?;
    assert_eq!(answer["choices"][0]["message"]["content"], "let me finish");
    assert_eq!(drained.await?, mstar_runtime::Drained::Clean);
    Ok(())
}

#[tokio::test]
async fn a_drained_server_stays_until_it_is_ended() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nretry_after_s = 3\n").await?);
    let running = waiting(&house).await?;
    let told: Value = house.post("/admin/drain").send().await?.error_for_status()?.json().await?;
    assert_eq!(told["status"], "draining");
    refuses_and_says_so(&house).await?;
    house.gate.open();
    running.await??.error_for_status()?;
    house.idle().await?;
    // All requests have ended, and it still says so.
    refuses_and_says_so(&house).await?;
    house.post("/admin/drain").send().await?.error_for_status()?;
    assert_eq!(house.cluster.drain(|_| {}).await, mstar_runtime::Drained::Clean);
    Ok(())
}
