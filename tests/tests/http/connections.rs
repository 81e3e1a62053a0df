//! Connections that only cost: too many of them, requests that never begin, answers that nobody takes.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::raw::{answer, asked, head, sent};

const ALIVE: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn requests_that_never_begin_are_closed() -> Outcome {
    let house = House::boot("[http]\nheader_timeout_s = 0.3\n").await?;
    let slow: [&[u8]; 3] = [b"", b"POST /generate HTT", b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-le"];
    for begun in slow {
        let answer = answer(sent(&house, begun).await?).await?;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    // A connection that was used once may not idle for ever either.
    let mut used = sent(&house, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let mut all = String::new();
    used.read_to_string(&mut all).await?;
    assert!(all.starts_with("HTTP/1.1 200") && all.ends_with('}'), "{all}");
    house.works().await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_head_that_trickles_is_closed_all_the_same() -> Outcome {
    let house = House::boot("[http]\nheader_timeout_s = 0.3\n").await?;
    let (read, mut write) = sent(&house, b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await?.into_split();
    let trickle = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        while write.write_all(b"x-slow: loris\r\n").await.is_ok() {
            ticks.tick().await;
        }
    });
    let answer = answer(read).await.unwrap_or_default();
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The server is gone for this client, so that the trickle ends by itself.
    trickle.await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn connections_beyond_the_bound_are_told_to_come_again() -> Outcome {
    let house = House::boot("[limits]\nretry_after_s = 4\n[http]\nmax_connections = 3\n").await?;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut one = sent(&house, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        let mut first = [0; 12];
        one.read_exact(&mut first).await?;
        assert_eq!(&first, b"HTTP/1.1 200");
        open.push(one);
    }
    let refused = asked(&house, ALIVE).await?.to_ascii_lowercase();
    assert!(refused.starts_with("http/1.1 503") && refused.contains("\r\nretry-after: 4\r\n"), "{refused}");
    let error: Value = serde_json::from_str(refused.split("\r\n\r\n").nth(1).unwrap_or_default())?;
    assert_eq!(error["error"]["code"], "overloaded");

    // Who leaves makes room; it may take the server a moment to notice.
    drop(open.pop());
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(10));
    while !asked(&house, ALIVE).await?.starts_with("HTTP/1.1 200") {
        ticks.tick().await;
    }
    drop(open);
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_gone_after_a_while() -> Outcome {
    let house = House::boot("[limits]\nclient_credit = 16\n[http]\nreader_stall_s = 0.3\n").await?;
    let form = "text=a+word&output_modalities=audio&model_kwargs=%7B%22walk%22%3A%22flood%22%2C%22items%22%3A65536%7D";
    let mut client = sent(&house, format!("{}{form}", head(form.len())).as_bytes()).await?;
    let mut begun = [0; 12];
    client.read_exact(&mut begun).await?;
    assert_eq!(&begun, b"HTTP/1.1 200");
    house.until("given up", |view| view["requests"]["running"] == serde_json::json!([])).await?;
    house.idle().await?;
    // What the system still has for it comes, but not the end: the answer broke off.
    let rest = answer(client).await?;
    assert!(!rest.ends_with("0\r\n\r\n"), "the answer must not be whole");
    house.close().await;
    Ok(())
}
