//! The benchmark: a load generator that asks a server over HTTP as its clients do, and tells what they would notice.
//!
//! A [`Bench`] says what is asked ([`Scenario`]), of whom ([`Target`]) and under which [`Load`]s; [`Bench::row`] measures
//! one of them. Every endpoint but the native one is OpenAI's, so other servers can be asked the same.

mod answer;
mod ask;
mod drive;
mod exposition;
mod listener;
mod load;
mod report;
mod row;
mod sample;
mod spread;
mod target;

use std::time::Duration;

use serde_json::{Map, Value};

pub use ask::{Question, Scenario};
pub use listener::{Heard, Piece, heard};
pub use load::Load;
pub use report::{document, table};
pub use row::Row;
pub use sample::Sample;
pub use spread::Spread;
pub use target::Target;

/// What is asked, and of whom.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The server.
    pub target: Target,
    /// What a request is.
    pub scenario: Scenario,
    /// The model that is asked.
    pub model: String,
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// What every request says, in the place of texts of its own.
    pub prompt: Option<String>,
    /// Words that prompts are made longer by.
    pub prompt_words: usize,
    /// Names every random choice: the texts, the arrivals.
    pub seed: u64,
    /// What is asked where a recording is heard.
    pub question: Question,
    /// Fields that are added to every request.
    pub fields: Map<String, Value>,
    /// The server's process, when it runs on this machine.
    pub pid: Option<u32>,
    /// How long a request may take.
    pub deadline: Duration,
}
