//! More requests at once than there is room for: the queue is bounded, the rest is told to come again, and whoever was
//! let in is served.

use std::sync::Arc;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::wire::header;

/// How many come at once.
const CLIENTS: usize = 500;

#[tokio::test]
async fn five_hundred_at_once_fill_the_queue_and_the_rest_is_refused() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nmax_concurrent = 4\nqueue_limit = 16\nretry_after_s = 7\n").await?);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let house = Arc::clone(&house);
        clients.spawn(async move {
            let text = format!("client {client}");
            let body = json!({"model": "scribe", "messages": [{"role": "user", "content": text}]});
            let response = house.post("/v1/chat/completions").json(&body).send().await?;
            let (status, retry) = (response.status(), header(&response, "retry-after"));
            Outcome::Ok((text, status, retry, response.json::<Value>().await?))
        });
    }
    // The gate is closed: 4 run, 16 wait, and all others must be refused before anybody is served.
    for _ in 0..CLIENTS - 20 {
        let (_, status, retry, body) = clients.join_next().await.ok_or("too few answers")???;
        assert_eq!((status, retry.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "7"), "{body}");
        assert_eq!(body["error"]["code"], "overloaded");
    }
    let view = house.view().await?;
    assert_eq!(
        (view["requests"]["running"].as_array().map(Vec::len), &view["requests"]["queued"]),
        (Some(4), &16.into())
    );
    house.gate.open();
    for _ in 0..20 {
        let (text, status, _, body) = clients.join_next().await.ok_or("too few answers")???;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body["choices"][0]["message"]["content"], text);
    }
    house.idle().await?;
    house.works().await
}

#[tokio::test]
async fn five_hundred_at_once_are_all_served_when_the_queue_has_room() -> Outcome {
    let house = Arc::new(House::boot("[limits]\nmax_concurrent = 32\nqueue_limit = 500\n").await?);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let house = Arc::clone(&house);
        clients.spawn(async move {
            let kwargs = r#"{"walk": "fan"}"#;
            let text = format!("client {client}");
            let fields = [("text", text.as_str()), ("streaming", "false"), ("model_kwargs", kwargs)];
            Outcome::Ok((text.clone(), house.generate(&fields).await?.error_for_status()?.json::<Value>().await?))
        });
    }
    while let Some(client) = clients.join_next().await {
        let (text, document) = client??;
        let reversed: String = text.chars().rev().collect();
        let joined = crate::wire::decode(&document["outputs"]["text"][0]["data"])?;
        assert_eq!(String::from_utf8(joined)?, format!("{}|{reversed}|{text}", text.to_uppercase()));
    }
    house.idle().await
}
