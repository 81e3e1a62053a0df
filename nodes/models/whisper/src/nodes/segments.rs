//! `whisper.segments`: a window's tokens become text, and it is known where the next window begins.

use mstar_blocks::Tokenizer;
use mstar_contract::{
    Component, Compute, ComputeCx, In, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput, Value,
    WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_weights::WeightFile;
use serde_json::json;

use super::{Heard, PACKAGE, Window, broken, tokenizer};
use crate::options::Options;
use crate::windows::{Cut, FRAMES_PER_SECOND, cut, past_silence, without_loop};
use crate::{Config, Specials};

/// The loop that the op ends when the audio does.
pub(crate) const WINDOWS: &str = "windows";

/// A rest of the audio of fewer frames than this, a tenth of a second, is not listened to.
const LEAST_FRAMES: usize = 10;

/// The component `whisper.segments`.
pub struct Segments;

/// Its op `segment`: the first `token` and the other `tokens` of a `window` become `text`, `segments` with times,
/// `next`, what the next window needs to know, and `transcript`, all the text so far.
struct Segment {
    tokenizer: Tokenizer,
    specials: Specials,
}

// --- impl Segments ---

impl Segments {
    /// The component's id.
    pub const ID: &'static str = "whisper.segments";
}

impl Component for Segments {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        let outputs = ["text", "segments", "next", "transcript"];
        vec![OpDecl::new("segment", &["window"], &outputs).optional("token").optional("tokens").stops(WINDOWS)]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let file = WeightFile::open(cx.dir).map_err(broken(Self::ID))?;
        let config = Config::read(cx.dir, &file).map_err(broken(Self::ID))?;
        let tokenizer = tokenizer(cx.dir).map_err(broken(Self::ID))?;
        let specials = Specials::read(cx.dir, &config, Some(&tokenizer)).map_err(broken(Self::ID))?;
        Ok(Loaded::Stateless(Box::new(Segment { tokenizer, specials })))
    }
}

// --- impl Segment ---

impl Segment {
    fn segment(&self, row: &Row) -> Result<RowOutput, RowError> {
        let window = Window::of(row)?;
        let mut tokens = tokens(row, "token");
        tokens.extend(self::tokens(row, "tokens"));
        let found = tokens.first().and_then(|&token| self.specials.language_of(token));
        let options = Options::of(row.request())?;
        let language = window.heard.language.clone().or(found.map(str::to_owned)).or(options.language);
        let first_time = self.specials.first_timestamp();
        if !tokens.contains(&self.specials.end) {
            // Nobody says that much in a window: where it never came to an end, it went round in circles.
            without_loop(&mut tokens);
        }
        tokens.retain(|&token| token < self.specials.end || token >= first_time);
        let mut cut = cut(&tokens, first_time, window.frames);
        let mut text: String = cut.segments.iter().map(|segment| self.tokenizer.decode(&segment.tokens)).collect();
        if text.trim().is_empty() {
            cut.advance = past_silence(window.onset, cut.advance);
        }
        if window.heard.text.is_empty() {
            text = text.trim_start().to_owned();
        }
        let transcript = format!("{}{text}", window.heard.text);
        let seek = window.seek + cut.advance;
        let mut output = RowOutput::default();
        if options.segments {
            output.push("segments", self.describe(&cut, &window, language.as_deref()));
        }
        if !text.is_empty() {
            output.push("text", Value::text(text));
        }
        output.push("transcript", Value::text(transcript.trim().to_owned()));
        if seek + LEAST_FRAMES > window.total {
            output.stops.push(WINDOWS.into());
        }
        output.push("next", Value::json(Heard { seek, language, text: transcript }.to_json()));
        Ok(output)
    }

    /// Returns the segments that say something, with their times in the whole audio.
    fn describe(&self, cut: &Cut, window: &Window, language: Option<&str>) -> Value {
        let seconds = |frame: usize| frame as f64 / FRAMES_PER_SECOND as f64;
        let said = cut.segments.iter().map(|segment| (segment, self.tokenizer.decode(&segment.tokens)));
        let segments: Vec<serde_json::Value> = said
            .filter(|(_, text)| !text.trim().is_empty())
            .map(|(segment, text)| {
                let (start, end) = (seconds(window.seek + segment.start), seconds(window.seek + segment.end));
                json!({ "start": start, "end": end, "text": text, "tokens": segment.tokens, "seek": window.seek })
            })
            .collect();
        let language = language.unwrap_or("en");
        Value::json(json!({ "segments": segments, "language": language, "duration": seconds(window.total) }))
    }
}

impl Compute for Segment {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| self.segment(row)).collect()
    }
}

/// Returns the tokens that came to a port: one value, all of a loop, or none.
fn tokens(row: &Row, port: &str) -> Vec<u32> {
    let values = match row.input(port) {
        Some(In::One(value)) => std::slice::from_ref(value),
        Some(In::All(values)) => values,
        _ => &[],
    };
    values.iter().filter_map(Value::as_tokens).flatten().copied().collect()
}
