//! `mstar demo`: boots the deployment, asks it a spoken question over HTTP, shows the answer and where the time went.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use mstar_media::{Limits as MediaLimits, decode_audio};
use mstar_runtime::BootEvent;
use serde_json::Map;
use tokio::time::Instant;

use crate::cli::DemoArgs;
use crate::client::{Client, Line, Prompt};
use crate::commands::Setting;
use crate::commands::run::read_recording;
use crate::commands::serve::{Busy, Running};
use crate::commands::timeline::Timeline;
use crate::output::{say, show};
use crate::recording::{Recording, WavFile};

/// A question asked by a voice of this project: 16 kHz, mono.
pub(crate) const QUESTION: &[u8] = include_bytes!("../../assets/question.wav");

/// What is shown of a reply while it comes.
#[derive(Default)]
struct Screen {
    timeline: Timeline,
    recording: Recording,
    /// Whether the line of the reply has begun.
    replying: bool,
}

/// Boots, asks, shows, and goes on serving unless told otherwise.
pub(crate) async fn demo(args: &DemoArgs, setting: Setting) -> Result<ExitCode> {
    let question = match &args.question {
        Some(path) => {
            if path.canonicalize().is_ok_and(|path| args.out.canonicalize().is_ok_and(|out| out == path)) {
                bail!(
                    "--question and --out name the same file, {}: the answer would replace the question",
                    path.display()
                );
            }
            let (name, bytes) = read_recording(path)?;
            // The server will read it too, but only after the boot.
            decode_audio(&bytes, &MediaLimits::default())
                .with_context(|| format!("{} cannot be heard", path.display()))?;
            (name, bytes)
        }
        None => ("question.wav".to_owned(), QUESTION.to_vec()),
    };
    let file = WavFile::open(&args.out)?;
    let key = setting.key();
    let began = Instant::now();
    let weights = Arc::new(Mutex::new(Duration::ZERO));
    let noted = Arc::clone(&weights);
    let hear = move |event: &BootEvent| {
        if matches!(event, BootEvent::Weights { .. }) {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = began.elapsed();
        }
    };
    let mut running = Running::start(&args.serve, setting, Busy::TakeAnother, hear).await?;
    let mut screen = Screen::default();
    screen.timeline.weights = *weights.lock().unwrap_or_else(PoisonError::into_inner);
    screen.timeline.boot = began.elapsed() - screen.timeline.weights;

    let client = Client::new(&format!("http://{}", running.server.address()), key)?;
    let model = running.cluster.deployment().default_model.clone();
    let asked = running.unless_asked(ask(&client, model, question, &mut screen)).await;
    let outcome = asked.and_then(|()| screen.finish(args, file));
    match (outcome, args.once) {
        (Ok(()), false) => match say(format_args!("Serving on http://{} until Ctrl-C.", running.server.address())) {
            Ok(()) => running.until_asked().await,
            Err(closed) => running.end().await.and(Err(closed)),
        },
        (outcome, _) => {
            let ended = running.end().await?;
            outcome.map(|()| ended)
        }
    }
}

async fn ask(client: &Client, model: String, question: (String, Vec<u8>), screen: &mut Screen) -> Result<()> {
    let prompt = Prompt {
        model,
        audio: Some(question),
        outputs: ["text", "audio", "detail"].map(str::to_owned).into(),
        // The likeliest answer: the same for everybody who tries it.
        options: Map::from_iter([("temperature".to_owned(), 0.into())]),
        ..Prompt::default()
    };
    say(format_args!("Asking a spoken question ({}).", prompt.audio.as_ref().map_or("", |(name, _)| name)))?;
    let ended = client.generate(&prompt, |line| screen.show(line)).await?;
    screen.timeline.total = ended.total;
    Ok(())
}

// --- impl Screen ---

impl Screen {
    /// Shows one thing that streamed back.
    fn show(&mut self, line: &Line) -> Result<()> {
        match line.modality.as_str() {
            "audio" => {
                self.timeline.first_audio.get_or_insert(line.after);
                self.recording.push(line);
            }
            "detail" => {
                if let Some(text) = line.transcript() {
                    self.timeline.heard.get_or_insert(line.after);
                    say(format_args!("Heard:  {}", text.trim()))?;
                }
            }
            "text" => {
                self.timeline.first_text.get_or_insert(line.after);
                if !self.replying {
                    show(b"Reply:  ")?;
                    self.replying = true;
                }
                show(&line.bytes)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the recording and the time line.
    fn finish(&mut self, args: &DemoArgs, file: WavFile) -> Result<()> {
        file.write(&self.recording)?;
        self.timeline.audio_seconds = self.recording.seconds();
        say(format_args!("\nSpoken: {}", args.out.display()))?;
        say(format_args!("Time:   {}", self.timeline))
    }
}
