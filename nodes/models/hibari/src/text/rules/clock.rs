//! Times of day and dates.

use super::super::numbers::{cardinal, ordinal, plural, year};
use super::{Around, Rule, group};
use regex::Captures;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const MONTH: &str = "(January|February|March|April|May|June|July|August|September|October|November|December\
                     |(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\\b\\.?)";

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule::new(r"(?i)\b([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\s?([ap])\.?\s?m\b(\.?))?", time),
        Rule::new(r"(?i)\b([0-9]{1,2})\s?([ap])(?:\.\s?m\.|m\b(\.?))", |found, around| {
            let hour: u8 = group(found, 1).parse().ok().filter(|h| (1..=12).contains(h))?;
            (!around.touches_word())
                .then(|| format!("{} {}", cardinal(&hour.to_string()), half_day(group(found, 2), found, around)))
        }),
        Rule::new(r"\b([apAP])\.\s?[mM]\.", |found, around| Some(half_day(group(found, 1), found, around))),
        Rule::new(r"\b([0-9]{4})-([0-9]{2})-([0-9]{2})\b", |found, _| {
            date(group(found, 2), group(found, 3), group(found, 1))
        }),
        Rule::new(r"\b([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})\b", |found, around| {
            if around.touches_word() {
                return None;
            }
            let (a, b, year) = (group(found, 1), group(found, 2), group(found, 3));
            let year = match year.len() {
                2 if year > "50" => format!("19{year}"),
                2 => format!("20{year}"),
                _ => year.to_owned(),
            };
            date(a, b, &year).or_else(|| date(b, a, &year))
        }),
        Rule::new(&format!(r"\b{MONTH}\s([0-9]{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s([0-9]{{4}})\b)?"), |found, around| {
            if around.after.is_some_and(|c| ":%/".contains(c)) {
                return None;
            }
            date(month_number(group(found, 1))?, group(found, 2), group(found, 3))
        }),
        Rule::new(&format!(r"\b(?:[Tt]he\s)?([0-9]{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?{MONTH}"), |found, around| {
            let day = day(group(found, 1))?;
            let month: usize = month_number(group(found, 2))?.parse().ok()?;
            let the = if found.get_match().as_str().starts_with('T') { "The" } else { "the" };
            (!around.touches_word()).then(|| format!("{the} {day} of {}", MONTHS[month - 1]))
        }),
        Rule::new(r"'?\b([0-9]{2}|[0-9]{4})s\b", |found, around| {
            let words = plural(&year(group(found, 1)));
            (!around.before.is_some_and(|c| c.is_alphanumeric() || "$£€.,".contains(c))).then_some(words)
        }),
    ]
}

fn time(found: &Captures<'_>, around: Around) -> Option<String> {
    let hour: u8 = group(found, 1).parse().ok().filter(|h| *h <= 24)?;
    let (minute, second) = (group(found, 2), group(found, 3));
    if minute > "59" || second > "59" || around.after.is_some_and(|c| c.is_ascii_digit()) {
        return None;
    }
    let half = group(found, 4);
    let mut words = cardinal(&hour.to_string());
    match minute {
        "00" if half.is_empty() && second.is_empty() => words += " o'clock",
        "00" if second.is_empty() => {}
        "00" => words += " hundred",
        minute if minute.starts_with('0') => words += &format!(" oh {}", cardinal(&minute[1..])),
        // Hyphenated, the stress falls on the second figure.
        minute => words += &format!(" {}", cardinal(minute).replace(' ', "-")),
    }
    if !second.is_empty() {
        words += &format!(" and {} seconds", cardinal(second.strip_prefix('0').unwrap_or(second)));
    }
    Some(if half.is_empty() { words } else { format!("{words} {}", half_day(half, found, around)) })
}

/// Returns "A.M" or "P.M", with a full stop where the abbreviation's own one also ended the text.
fn half_day(letter: &str, found: &Captures<'_>, around: Around) -> String {
    let stop = found.get_match().as_str().ends_with('.') && around.after.is_none();
    format!("{}.M{}", letter.to_uppercase(), if stop { "." } else { "" })
}

/// Returns "March third, twenty twenty four", or without a year where there is none.
fn date(month: impl AsRef<str>, of_month: &str, of_era: &str) -> Option<String> {
    let month: usize = month.as_ref().parse().ok().filter(|m| (1..=12).contains(m))?;
    let year = if of_era.is_empty() { String::new() } else { format!(", {}", year(of_era)) };
    Some(format!("{} {}{year}", MONTHS[month - 1], day(of_month)?))
}

fn day(figures: &str) -> Option<String> {
    let day: u8 = figures.parse().ok().filter(|d| (1..=31).contains(d))?;
    Some(ordinal(&day.to_string()))
}

fn month_number(name: &str) -> Option<String> {
    let at = MONTHS.iter().position(|month| name.get(..3).is_some_and(|head| month.starts_with(head)))?;
    Some((at + 1).to_string())
}
