//! API keys: everything but health needs one when there are any.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use reqwest::{Method, StatusCode};
use serde_json::Value;

#[tokio::test]
async fn everything_but_health_needs_a_key() -> Outcome {
    let house = House::boot("").await?;
    house.works().await?;
    house.close().await;
    // The key stands at the top of the file, before its tables.
    let house = House::boot_with("api_keys = [\"correct-horse\"]\n", "").await?;
    for path in ["/health", "/healthz", "/readyz"] {
        assert_eq!(house.get(path).await?.status(), StatusCode::OK, "{path}");
    }
    let guarded = [
        (Method::GET, "/v1/models"),
        (Method::POST, "/v1/chat/completions"),
        (Method::POST, "/v1/audio/speech"),
        (Method::POST, "/v1/audio/transcriptions"),
        (Method::POST, "/generate"),
        (Method::DELETE, "/v1/requests/x"),
        (Method::GET, "/metrics"),
        (Method::GET, "/admin/cluster"),
        (Method::GET, "/admin/requests/x"),
        (Method::POST, "/admin/drain"),
    ];
    for (method, path) in guarded {
        for key in [None, Some("Bearer wrong"), Some("Basic correct-horse"), Some("Bearer correct-hors")] {
            let mut request = house.http().request(method.clone(), house.url(path));
            if let Some(key) = key {
                request = request.header("authorization", key);
            }
            let response = request.send().await?;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path} {key:?}");
            assert!(response.headers().contains_key("www-authenticate"));
            assert_eq!(response.json::<Value>().await?["error"]["code"], "invalid_api_key");
        }
    }
    for key in ["Bearer correct-horse", "bearer correct-horse"] {
        let models = house.http().get(house.url("/v1/models")).header("authorization", key).send().await?;
        assert_eq!(models.status(), StatusCode::OK, "{key}");
    }
    house.close().await;
    Ok(())
}
