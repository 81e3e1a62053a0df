//! `voice`: a voice assistant made of other models' components.
//!
//! Its walks are `chat`, `speak`, `transcribe` and `converse` (with `listen` before `chat` and `converse` where there is
//! audio, and `read`, `say` and `sound` beside them where there is speech). It has no weights and no node code, and it
//! refuses to know how its parts work: it includes their [`Parts`] and rewires the ends.
//!
//! ```
//! # use mstar_contract::Task;
//! use std::collections::BTreeSet;
//! use mstar_graph::Modality::{Audio, Text};
//! use mstar_voice::{Route, route};
//! assert_eq!(route(Task::Generate, true, false, &BTreeSet::from([Audio])), Route::Speak);
//! assert_eq!(route(Task::Generate, false, true, &BTreeSet::from([Text, Audio])), Route::Converse { listens: true });
//! ```

mod model;
mod plan;

pub use model::{Parts, Voice};
pub use plan::{Route, route};
