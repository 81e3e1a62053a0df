//! How a pull looks on a terminal: a bar per file, and lines where there is no terminal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use mstar_weights::Event;

use crate::output::note;

/// The bars of all files under way. Clones share them.
#[derive(Clone)]
pub(crate) struct Bars {
    all: MultiProgress,
    files: Arc<Mutex<BTreeMap<&'static str, ProgressBar>>>,
}

const LOOK: &str = "{msg:40!} {bar:30} {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12}";

// --- impl Bars ---

impl Bars {
    /// Returns no bars yet. They go to standard error.
    pub(crate) fn new() -> Self {
        Self { all: MultiProgress::new(), files: Arc::default() }
    }

    /// Shows what a pull is doing.
    pub(crate) fn show(&self, package: &str, event: Event) {
        match event {
            Event::Waiting => self.say(&format!("{package}: another process is at it, waiting")),
            Event::Fetching { file, bytes, total } => {
                let bar = self.bar(file, total);
                bar.set_position(bytes);
            }
            Event::Retrying { file, reason } => self.say(&format!("{file}: trying again, because {reason}")),
            Event::Verified { file } => {
                if let Some(bar) = self.lock().remove(file) {
                    bar.finish_and_clear();
                }
                self.say(&format!("{file}: verified"));
            }
            Event::Converting => self.say(&format!("{package}: converting")),
        }
    }

    /// Takes away what is left of the bars.
    pub(crate) fn clear(&self) {
        self.lock().values().for_each(ProgressBar::finish_and_clear);
        self.lock().clear();
    }

    fn bar(&self, file: &'static str, total: u64) -> ProgressBar {
        let mut files = self.lock();
        let make = || {
            if self.all.is_hidden() {
                note(format_args!("{file}: fetching {} MB", total.div_ceil(1_000_000)));
            }
            let bar = self.all.add(ProgressBar::new(total)).with_message(file);
            bar.set_style(ProgressStyle::with_template(LOOK).expect("invariant: the template is well formed"));
            bar
        };
        files.entry(file).or_insert_with(make).clone()
    }

    fn say(&self, line: &str) {
        if self.all.is_hidden() || self.all.println(line).is_err() {
            note(line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, ProgressBar>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
