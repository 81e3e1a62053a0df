//! The five nodes: a file each, with their ops.

mod decoder;
mod encoder;
mod features;
mod media;
mod segments;

use std::path::Path;

use mstar_blocks::Tokenizer;
use mstar_contract::{LoadError, RowError};
use serde_json::{Value, json};

pub(crate) use decoder::DECODE;
pub use decoder::Decode;
pub use encoder::Encode;
pub use features::Features;
pub use media::MediaIn;
pub use segments::Segments;
pub(crate) use segments::WINDOWS;

/// The weight package of those that have weights.
const PACKAGE: &str = "whisper_tiny_en";

/// One window of the audio, as it goes from node to node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Where it begins, in frames.
    pub(crate) seek: usize,
    /// How many frames of audio it has.
    pub(crate) frames: usize,
    /// How many frames all the audio has.
    pub(crate) total: usize,
    /// Whether it is decoded with times.
    pub(crate) timestamps: bool,
    /// Where its loud part begins, in frames from its start.
    pub(crate) onset: usize,
    /// What earlier windows left.
    pub(crate) heard: Heard,
}

/// What windows leave for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Where it begins, in frames.
    pub(crate) seek: usize,
    /// The language that was found.
    pub(crate) language: Option<String>,
    /// The transcript so far.
    pub(crate) text: String,
}

// --- impl Window ---

impl Window {
    fn to_json(&self) -> Value {
        json!({
            "seek": self.seek, "frames": self.frames, "total": self.total, "timestamps": self.timestamps,
            "onset": self.onset, "heard": self.heard.to_json(),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            seek: size(&value["seek"])?,
            frames: size(&value["frames"])?,
            total: size(&value["total"])?,
            timestamps: value["timestamps"].as_bool()?,
            onset: size(&value["onset"])?,
            heard: Heard::from_json(&value["heard"])?,
        })
    }

    /// Reads the window of a row.
    fn of(row: &mstar_contract::Row) -> Result<Self, RowError> {
        let window = row.value("window")?.as_json().and_then(Self::from_json);
        window.ok_or_else(|| RowError::Internal("input window is no window".into()))
    }
}

// --- impl Heard ---

impl Heard {
    fn to_json(&self) -> Value {
        json!({ "seek": self.seek, "language": self.language, "text": self.text })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let language = value["language"].as_str().map(str::to_owned);
        Some(Self { seek: size(&value["seek"])?, language, text: value["text"].as_str()?.to_owned() })
    }
}

fn size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|size| usize::try_from(size).ok())
}

/// Turns what went wrong while a component loaded into its error.
fn broken<E: ToString>(component: &'static str) -> impl Fn(E) -> LoadError {
    move |error| LoadError { component: component.into(), message: error.to_string() }
}

/// Reads the tokeniser of a folder.
pub(crate) fn tokenizer(folder: &Path) -> Result<Tokenizer, String> {
    let json = std::fs::read(folder.join("tokenizer.json")).map_err(|error| format!("tokenizer.json: {error}"))?;
    Tokenizer::from_json(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_reads_back_what_it_shows() {
        let heard = Heard { seek: 7, language: Some("de".into()), text: "Ach so.".into() };
        let window = Window { seek: 7, frames: 5, total: 12, timestamps: true, onset: 3, heard };
        assert_eq!(Window::from_json(&window.to_json()), Some(window));
        assert_eq!(Window::from_json(&Value::Null), None);
    }
}
