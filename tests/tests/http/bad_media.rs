//! Malformed forms and hostile uploads: refused by name, and the next good request works.

use mstar_tests::House;
use mstar_tests::house::Outcome;

use crate::bad_input::{Bad, refused};
use crate::wire::tone;

const GENERATE: &str = "/generate";
const TRANSCRIBE: &str = "/v1/audio/transcriptions";
const MULTIPART: &str = "multipart/form-data; boundary=edge";

/// A part of a form: its field, its file name and content type if it is a file, its bytes.
type Part<'a> = (&'a str, Option<(&'a str, &'a str)>, &'a [u8]);

fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, file, bytes) in parts {
        body.extend(format!("--edge\r\ncontent-disposition: form-data; name=\"{field}\"").bytes());
        if let Some((name, kind)) = file {
            body.extend(format!("; filename=\"{name}\"\r\ncontent-type: {kind}").bytes());
        }
        body.extend(b"\r\n\r\n");
        body.extend(*bytes);
        body.extend(b"\r\n");
    }
    body.extend(b"--edge--\r\n");
    body
}

fn bad(path: &'static str, body: Vec<u8>, status: u16, param: &'static str) -> Bad {
    Bad { path, content_type: MULTIPART, body, status, param }
}

fn pairs(body: &str, param: &'static str) -> Bad {
    let content_type = "application/x-www-form-urlencoded";
    Bad { path: GENERATE, content_type, body: body.as_bytes().to_vec(), status: 422, param }
}

#[tokio::test]
async fn forms_are_refused_by_field() -> Outcome {
    let house = House::boot("[limits]\nbody_bytes = \"1MiB\"\n").await?;
    let text: Part<'_> = ("text", None, b"hi");
    let whole = form(&[text]);
    let cut = whole[..whole.len() - 12].to_vec();
    let long_id = "a".repeat(200);
    let many: Vec<Part<'_>> = std::iter::repeat_n(text, 100).collect();
    let nameless = b"--edge\r\ncontent-disposition: form-data\r\n\r\nx\r\n--edge--\r\n".to_vec();
    let table = vec![
        pairs("", "text"),
        pairs("text=", "text"),
        pairs("text=%ff%fe", "text"),
        pairs("text=a&text=b", "text"),
        pairs("text=a&colour=red", "colour"),
        pairs("text=a&streaming=maybe", "streaming"),
        pairs("text=a&model_kwargs=%5B1%5D", "model_kwargs"),
        pairs("text=a&model_kwargs=%7B%22temperature%22%3A%22hot%22%7D", "model_kwargs.temperature"),
        pairs("text=a&model_kwargs=%7B%22warmth%22%3A1%7D", "model_kwargs.warmth"),
        pairs("text=a&model_kwargs=%7B%22model%22%3A5%7D", "model_kwargs.model"),
        pairs("text=a&output_modalities=smell", "output_modalities"),
        pairs("text=a&output_modalities=,", "output_modalities"),
        pairs("text=a&input_modalities=audio", "input_modalities"),
        pairs("text=a&request_id=a%20b", "request_id"),
        pairs(&format!("text=a&request_id={long_id}"), "request_id"),
        Bad { status: 400, ..pairs("text=a&model_kwargs=%7B", "model_kwargs") },
        Bad { status: 404, ..pairs("text=a&model=nobody", "model") },
        bad(GENERATE, form(&[("text", None, b"\xff\xfe")]), 422, "text"),
        bad(GENERATE, form(&many), 400, "body"),
        bad(GENERATE, nameless, 400, "body"),
        bad(GENERATE, cut, 400, "text"),
        bad(GENERATE, b"no boundary at all".to_vec(), 400, "body"),
        bad(GENERATE, b"--edge\r\n\xff\xff\xff: x\r\n\r\n".to_vec(), 400, "body"),
        bad(GENERATE, vec![b'x'; 2 << 20], 413, "body"),
        bad(GENERATE, form(&[("files", Some(("a.bin", "application/octet-stream")), &[0; 64])]), 422, "files[0]"),
        bad(GENERATE, form(&[("attachment", Some(("a.wav", "audio/wav")), &tone(0.1))]), 422, "attachment"),
        Bad { content_type: "multipart/form-data", ..bad(GENERATE, form(&[text]), 400, "body") },
        Bad { content_type: "application/json", ..bad(GENERATE, b"{}".to_vec(), 415, "content-type") },
    ];
    refused(&house, table).await?;
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn hostile_audio_is_refused() -> Outcome {
    let house = House::boot("").await?;
    let good = tone(0.5);
    let lying = |at: usize, bytes: &[u8]| {
        let mut wav = good.clone();
        wav[at..at + bytes.len()].copy_from_slice(bytes);
        wav
    };
    let model: Part<'_> = ("model", None, b"scribe");
    let file =
        |bytes: &[u8]| bad(TRANSCRIBE, form(&[model, ("file", Some(("a.wav", "audio/wav")), bytes)]), 422, "file");
    let with = |name: &str, value: &str| {
        form(&[model, (name, None, value.as_bytes()), ("file", Some(("a.wav", "audio/wav")), &good)])
    };
    let table = vec![
        file(b""),
        file(b"RIFF"),
        file(b"this is no sound"),
        file(&good[..30]),
        file(&good[..good.len() / 2]),
        // Channels, rate and bits that nobody has, and a block of samples that is larger than the file.
        file(&lying(22, &[0, 0])),
        file(&lying(24, &[0, 0, 0, 0])),
        file(&lying(34, &[77, 0])),
        file(&lying(40, &[0, 0, 0, 0x7f])),
        file(b"fLaC\x00\x00\x00\x22\xff\xff\xff\xff"),
        file(b"OggS\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00"),
        file(b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f"),
        file(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"),
        bad(TRANSCRIBE, form(&[model]), 422, "file"),
        bad(TRANSCRIBE, form(&[model, ("file", None, b"text")]), 422, "file"),
        bad(TRANSCRIBE, with("response_format", "docx"), 422, "response_format"),
        bad(TRANSCRIBE, with("temperature", "hot"), 422, "temperature"),
        bad(TRANSCRIBE, with("temperature", "7"), 422, "temperature"),
        bad(TRANSCRIBE, with("timestamp_granularities[]", "word"), 422, "timestamp_granularities[]"),
        bad(TRANSCRIBE, with("seed", "x"), 422, "seed"),
        bad(TRANSCRIBE, with("beam", "5"), 422, "beam"),
        Bad { content_type: "application/json", ..bad(TRANSCRIBE, b"{}".to_vec(), 415, "content-type") },
    ];
    refused(&house, table).await?;
    let two = ("file", Some(("a.wav", "audio/wav")), &good[..]);
    refused(&house, vec![bad(TRANSCRIBE, form(&[model, two, two]), 422, "file")]).await?;
    house.close().await;
    Ok(())
}
