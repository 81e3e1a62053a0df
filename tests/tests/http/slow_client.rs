//! A client that does not read: its request stops producing, what waits for it stays small, and when it reads again it
//! gets everything.

use std::time::Duration;

use mstar_tests::House;
use mstar_tests::house::Outcome;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Items that the request asks for; each is some 700 bytes of audio or more.
const ITEMS: u64 = 1 << 16;
/// What may wait in all for a client that reads nothing, sockets apart.
const MOST_WAITING: u64 = 1 << 20;
/// When the request must stand still.
const STANDS_WITHIN: Duration = Duration::from_secs(60);

fn bytes_alive(view: &Value) -> u64 {
    view["ranks"].as_array().into_iter().flatten().filter_map(|rank| rank["tensors"]["bytes"].as_u64()).sum()
}

fn held(position: &Value) -> bool {
    position["position"]["emissions_held"].as_u64().unwrap_or(0) > 0
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_producer_and_loses_nothing() -> Outcome {
    let house = House::boot("[limits]\nclient_credit = 16\n[http]\nreader_stall_s = 600\n").await?;
    let kwargs = format!("%7B%22walk%22%3A%22flood%22%2C%22items%22%3A{ITEMS}%7D");
    let form = format!("text=a+word+that+is+repeated&output_modalities=audio&model_kwargs={kwargs}");
    let head =
        "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded";
    let mut client = TcpStream::connect(house.address()).await?;
    client.write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{form}", form.len()).as_bytes()).await?;

    let (id, mut body) = head_of(&mut client).await?;
    tokio::time::timeout(STANDS_WITHIN, stands_still(&house, &id)).await??;
    client.read_to_end(&mut body).await?;
    let bytes: usize = audio_bytes(&body)?;
    let text: usize = (0..ITEMS).map(|i| "a word that is repeated".len() + i.to_string().len()).sum();
    let samples = text * mstar_engines::fake::FakeVocoder::SAMPLES_PER_BYTE + mstar_engines::fake::FakeVocoder::TAIL;
    assert_eq!(bytes, samples * 2, "16-bit samples of every item");
    house.idle().await?;
    house.close().await;
    Ok(())
}

/// Reads the head of the answer; returns the request's id and what came of the body already.
async fn head_of(client: &mut TcpStream) -> Outcome<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec())?;
            let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).ok_or("no id")?;
            return Ok((id.to_owned(), read[end + 4..].to_vec()));
        }
        let mut byte = [0];
        client.read_exact(&mut byte).await?;
        read.extend(byte);
    }
}

/// Waits until two looks, with other requests served in between, find the slow client's request held at the same place.
async fn stands_still(house: &House, id: &str) -> Outcome {
    let mut last = Value::Null;
    loop {
        for _ in 0..20 {
            house.works().await?;
        }
        let view = house.view().await?;
        assert!(bytes_alive(&view) <= MOST_WAITING, "too much waits: {view:#}");
        let position: Value = house.get(&format!("/admin/requests/{id}")).await?.json().await?;
        let now = view["nodes"].as_array().into_iter().flatten().map(|node| node["queue"].clone()).collect::<Value>();
        if held(&position) && now == last {
            return Ok(());
        }
        last = now;
    }
}

/// Returns how many bytes of audio a raw HTTP answer has, without decoding it.
fn audio_bytes(answer: &[u8]) -> Outcome<usize> {
    let text = std::str::from_utf8(answer)?;
    let mut bytes = 0;
    for piece in text.split("\"data\":\"").skip(1) {
        let data = piece.split('"').next().ok_or("a line without its end")?;
        // A chunk of the body may end within the data: then its frame stands in between.
        let data: String = if data.contains('\r') { data.split("\r\n").step_by(2).collect() } else { data.to_owned() };
        bytes += data.len() / 4 * 3 - data.bytes().rev().take_while(|&b| b == b'=').count();
    }
    Ok(bytes)
}
