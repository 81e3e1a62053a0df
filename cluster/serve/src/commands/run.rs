//! `mstar run`: sends one request to a running server.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

use crate::cli::RunArgs;
use crate::client::{Client, Prompt};
use crate::output::{note, say, show};
use crate::recording::{Recording, WavFile};

/// Sends the request and shows what comes back.
pub(crate) async fn run(args: &RunArgs, default_key: Option<String>) -> Result<ExitCode> {
    let mut prompt = Prompt {
        model: args.model.clone(),
        text: args.text.clone(),
        options: options(&args.options)?,
        ..Prompt::default()
    };
    if let Some(path) = &args.audio {
        prompt.audio = Some(read_recording(path)?);
    }
    if prompt.text.is_none() && prompt.audio.is_none() {
        bail!("nothing to send: give --text, --audio or both");
    }
    prompt.outputs = match (&args.outputs, &args.out) {
        (Some(list), _) => list.split(',').map(|name| name.trim().to_owned()).collect(),
        (None, Some(_)) if args.model == "hibari" => vec!["audio".to_owned()],
        (None, Some(_)) => vec!["text".to_owned(), "audio".to_owned()],
        (None, None) => vec!["text".to_owned()],
    };
    // Before anybody works for it.
    let file = args.out.as_deref().map(WavFile::open).transpose()?;
    let client = Client::new(&args.server, args.api_key.clone().or(default_key))?;
    let mut recording = Recording::default();
    let ended = client
        .generate(&prompt, |line| {
            match line.modality.as_str() {
                "text" => show(&line.bytes)?,
                "audio" => recording.push(line),
                "detail" => note(String::from_utf8_lossy(&line.bytes)),
                other => note(format_args!("[{other}: {} bytes]", line.bytes.len())),
            }
            Ok(())
        })
        .await?;
    say("")?;
    if let (Some(file), Some(path)) = (file, &args.out) {
        file.write(&recording)?;
        note(format_args!("{:.2} s of audio written to {}", recording.seconds(), path.display()));
    }
    let trace = ended.traceparent.map_or_else(String::new, |trace| format!(", trace {trace}"));
    note(format_args!("request {} took {:.2} s{trace}", ended.request_id, ended.total.as_secs_f64()));
    Ok(ExitCode::SUCCESS)
}

/// Reads a recording from disk: its name and its bytes.
pub(crate) fn read_recording(path: &Path) -> Result<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_name().map_or_else(|| "audio".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok((name, bytes))
}

/// Reads KEY=VALUE pairs; a value that is JSON is taken as such, anything else as text.
pub(crate) fn options(pairs: &[String]) -> Result<Map<String, Value>> {
    let read = |pair: &String| {
        let (key, value) = pair.split_once('=').with_context(|| format!("option {pair:?} is not KEY=VALUE"))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        Ok((key.to_owned(), value))
    };
    pairs.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_json_where_they_can_be() {
        let read = options(&["temperature=0.5".into(), "voice=heart".into(), "stop=[\"a=b\"]".into()]).unwrap();
        assert_eq!(Value::Object(read).to_string(), r#"{"stop":["a=b"],"temperature":0.5,"voice":"heart"}"#);
        assert!(options(&["voice".into()]).is_err());
    }
}
