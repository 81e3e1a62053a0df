//! The rules of [`Normaliser`](super::Normaliser): a pattern and how to read what it found, applied in order.

mod amounts;
mod clock;
mod figures;
mod links;
pub(super) mod marks;
mod words;

use regex::{Captures, Regex};

/// A number as it is written: grouping commas, a fraction, or a bare fraction.
const NUMBER: &str = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)";

/// The characters on either side of a match.
#[derive(Debug, Clone, Copy)]
struct Around {
    before: Option<char>,
    after: Option<char>,
}

impl Around {
    /// Returns whether a figure or letter touches the match, which is then part of something longer.
    fn touches_word(self) -> bool {
        self.before.is_some_and(|c| c.is_alphanumeric() || c == '.') || self.after.is_some_and(char::is_alphanumeric)
    }
}

/// Reads a match; `None` leaves it as it stands.
type Reading = fn(&Captures<'_>, Around) -> Option<String>;

/// A pattern and its reading.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pattern: Regex,
    read: Reading,
}

impl Rule {
    fn new(pattern: &str, read: Reading) -> Self {
        Self { pattern: Regex::new(pattern).expect("invariant: the rules are constants and compile"), read }
    }

    /// Returns the text with every match read.
    pub(super) fn apply(&self, text: &str) -> String {
        let (mut out, mut done) = (String::with_capacity(text.len()), 0);
        for found in self.pattern.captures_iter(text) {
            let whole = found.get_match();
            let around =
                Around { before: text[..whole.start()].chars().next_back(), after: text[whole.end()..].chars().next() };
            if let Some(words) = (self.read)(&found, around) {
                out.push_str(&text[done..whole.start()]);
                out.push_str(&words);
                done = whole.end();
            }
        }
        out.push_str(&text[done..]);
        out
    }
}

/// Returns all rules in their order: what is most specific comes first.
pub(super) fn all() -> Vec<Rule> {
    [links::rules(), clock::rules(), amounts::rules(), words::rules(), figures::rules()].concat()
}

/// Returns the text of a group, empty where it took no part.
fn group<'a>(found: &'a Captures<'_>, at: usize) -> &'a str {
    found.get(at).map_or("", |m| m.as_str())
}
