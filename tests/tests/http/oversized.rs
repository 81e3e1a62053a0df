//! Prompts that do not fit into the context of a real model: refused with the field and the numbers, and nobody else
//! notices.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::StatusCode;
use serde_json::{Value, json};

fn chat(text: &str) -> Value {
    let messages = json!([{"role": "user", "content": text}]);
    json!({"model": "smollm2", "messages": messages, "max_tokens": 1, "temperature": 0})
}

#[tokio::test]
async fn a_prompt_that_leaves_no_room_for_an_answer_is_refused_over_http() -> Outcome {
    let house = House::real("[model.smollm2]\nprecision = \"bf16\"\n[[rank]]\nname = \"cpu0\"\nthreads = 2\n").await?;
    // More tokens than the context has, and a text so long that it is not even taken apart.
    let table = [("word ".repeat(9000), "tokens leave no room"), ("x".repeat(8 << 20), "bytes leave no room")];
    for (text, told) in &table {
        for stream in [false, true] {
            let mut body = chat(text);
            body["stream"] = json!(stream);
            let refused = house.post("/v1/chat/completions").json(&body).send().await?;
            assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "{told}");
            let error: Value = refused.json().await?;
            assert_eq!(error["error"]["param"], "messages", "{error}");
            let message = error["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(told) && message.contains("8192"), "{message}");
        }
    }
    let native = [("text", table[0].0.as_str()), ("model", "smollm2")];
    assert_eq!(house.generate(&native).await?.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let answer = house.post("/v1/chat/completions").json(&chat("Hello!")).send().await?.error_for_status()?;
    assert_eq!(answer.json::<Value>().await?["usage"]["completion_tokens"], 1);
    house.idle().await?;
    house.close().await;
    Ok(())
}
