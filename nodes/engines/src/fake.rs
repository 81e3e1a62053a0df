//! Scripted components without weights, for tests of everything around engines: they compute nothing worth having,
//! but keep real state, real pages and real order, so that what the runtime loses or mixes up shows in the output.

mod component;
mod cutter;
mod faults;
mod lexicon;
mod llm;
mod model;
mod text;
mod timed;
mod vocoder;

pub use component::{FakeComponent, FakeSettings};
pub use cutter::FakeCutter;
pub use faults::{ERROR_WORD, FaultPlan, PANIC_WORD, Reach};
pub use lexicon::Lexicon;
pub use llm::{FakeLlm, FakeLlmLimits};
pub use model::FakeModel;
pub use text::FakeStateless;
pub use timed::{ServiceTime, Timed};
pub use vocoder::FakeVocoder;
