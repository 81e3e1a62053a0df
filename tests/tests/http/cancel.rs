//! Clients that leave: their requests end, nothing of them stays behind, and nobody else notices.

use std::sync::Arc;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::wire::{joined, lines};

const KWARGS: &str = r#"{"walk": "converse", "temperature": 0, "max_output_tokens": 60}"#;

fn fields(text: &str) -> [(&str, &str); 3] {
    [("text", text), ("output_modalities", "text,audio"), ("model_kwargs", KWARGS)]
}

/// Asks and reads all; returns text and audio.
async fn whole(house: &House, text: &str) -> Outcome<(Vec<u8>, Vec<u8>)> {
    let body = house.generate(&fields(text)).await?.error_for_status()?.bytes().await?;
    let lines = lines(&body)?;
    Ok((joined(&lines, "text"), joined(&lines, "audio")))
}

#[tokio::test]
async fn half_of_the_clients_leave_and_the_others_get_everything() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nmax_concurrent = 16\nqueue_limit = 1000\n").await?);
    let mut expected = Vec::new();
    for prompt in 0..8 {
        expected.push(whole(&house, &format!("prompt {prompt}")).await?);
    }
    let mut clients = JoinSet::new();
    for client in 0..200_usize {
        let house = Arc::clone(&house);
        clients.spawn(async move {
            let prompt = client % 8;
            let text = format!("prompt {prompt}");
            if client / 8 % 2 == 0 {
                return Outcome::Ok(Some((prompt, whole(&house, &text).await?)));
            }
            // Some leave before the first piece, others after one or a few.
            let mut response = house.generate(&fields(&text)).await?.error_for_status()?;
            for _ in 0..client % 5 {
                response.chunk().await?;
            }
            Ok(None)
        });
    }
    while let Some(client) = clients.join_next().await {
        if let Some((prompt, got)) = client?? {
            assert!(got == expected[prompt], "prompt {prompt} was answered otherwise than alone");
        }
    }
    house.idle().await?;
    house.works().await
}

#[tokio::test]
async fn a_client_that_leaves_a_waiting_request_takes_it_along() -> Outcome {
    let house = House::boot("").await?;
    let body = json!({"model": "scribe", "messages": [{"role": "user", "content": "wait"}]});
    let asked = house.post("/v1/chat/completions").header("x-request-id", "leaver").json(&body).send();
    let left = tokio::select! {
        answered = asked => answered.map(|_| false),
        running = house.until("running", |view| view["requests"]["running"][0]["id"] == "leaver") => running.map(|_| Ok(true))?,
    };
    assert!(left?, "the request must not end by itself");
    house.until("gone", |view| view["requests"]["running"] == json!([])).await?;
    house.gate.open();
    house.idle().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_request_is_cancelled_by_its_id_wherever_it_stands() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nmax_concurrent = 1\n").await?);
    let ask = |id: &'static str| {
        let (house, body) =
            (Arc::clone(&house), json!({"model": "scribe", "messages": [{"role": "user", "content": "x"}]}));
        tokio::spawn(
            async move { house.post("/v1/chat/completions").header("x-request-id", id).json(&body).send().await },
        )
    };
    let running = ask("running");
    house.until("running", |view| view["requests"]["running"][0]["id"] == "running").await?;
    let queued = ask("queued");
    house.until("queued", |view| view["requests"]["queued"] == 1).await?;
    for (id, state) in [("running", "running"), ("queued", "queued")] {
        let at: Value = house.get(&format!("/admin/requests/{id}")).await?.error_for_status()?.json().await?;
        assert_eq!(at["state"], state, "{at}");
    }
    let at: Value = house.get("/admin/requests/running").await?.json().await?;
    assert_eq!(at["position"]["partitions"][0]["walk"], "wait");
    for id in ["queued", "running"] {
        let url = house.url(&format!("/v1/requests/{id}"));
        house.http().delete(url).send().await?.error_for_status()?;
    }
    for request in [running, queued] {
        let response = request.await??;
        assert_eq!(response.status(), StatusCode::from_u16(499)?);
        assert_eq!(response.json::<Value>().await?["error"]["code"], "cancelled");
    }
    house.gate.open();
    house.idle().await
}
