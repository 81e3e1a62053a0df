//! Stories that must hold, told on a whole deployment in one process, and the benchmarks.
//!
//! [`crash`] kills node actors at random while mixed requests run and compares every byte with an undisturbed run,
//! [`cancel`] lets half of many clients go away at random moments and looks for what is left of them, [`flood`] sends
//! more requests at once than may wait. Each takes a [`Setting`] (real weights, or the scripted model) and gives a
//! [`Report`]: figures, and the invariants that did not hold. [`http_overhead`] measures what a request costs over HTTP
//! when its model computes nothing, [`scheduler`] how requests get along with each other on real weights, [`Bench`] any
//! server under load, as its clients notice it; [`Pieces`] are networks without a server around them, to be timed beside
//! other implementations of the same.
//!
//! The crate refuses to know how any of it works inside: it boots what users boot, and asks as clients ask.
//!
//! ```
//! use mstar_scenarios::Report;
//! let mut report = Report::new(serde_json::json!({"lost": 1}));
//! report.must(false, || "1 request was lost".to_owned());
//! assert_eq!(report.document()["broken"][0], "1 request was lost");
//! ```

mod asks;
mod bench;
mod cancel;
mod counter;
mod crash;
mod dice;
mod error;
mod flood;
mod held;
mod http;
mod http_overhead;
mod lots;
mod machine;
mod pieces;
mod reply;
mod report;
mod scheduler;
mod setting;

pub use bench::{Bench, Heard, Load, Piece, Question, Row, Sample, Scenario, Spread, Target, document, heard, table};
pub use cancel::{CancelStory, cancel};
pub use crash::{CrashStory, crash};
pub use dice::STRUCK;
pub use error::StoryError;
pub use flood::{FloodStory, flood};
pub use http_overhead::{HttpOverhead, http_overhead};
pub use pieces::{LayerPieces, LlamaPieces, Pieces, WhisperPieces};
pub use report::Report;
pub use scheduler::scheduler;
pub use setting::Setting;
