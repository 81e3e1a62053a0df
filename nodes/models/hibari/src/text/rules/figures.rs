//! Numbers that stand for themselves: fractions, ranges, ordinals, versions, plain figures.

use super::super::numbers::{cardinal, digits, ordinal, plain};
use super::{Around, NUMBER, Rule, group};
use regex::Captures;

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule::new(r"\b([0-9]+)\s([0-9]{1,2})/([0-9]{1,3})\b", |found, around| {
            let part = fraction(group(found, 2), group(found, 3))?;
            (!around.touches_word() && around.after != Some('/'))
                .then(|| format!("{} and {part}", cardinal(group(found, 1))))
        }),
        Rule::new(r"\b([0-9]{1,2})/([0-9]{1,3})\b", |found, around| {
            let (a, b) = (group(found, 1), group(found, 2));
            let whole = !around.touches_word() && around.after != Some('/') && around.before != Some('/');
            whole.then(|| fraction(a, b).unwrap_or_else(|| format!("{} {}", cardinal(a), cardinal(b))))
        }),
        Rule::new(r"(\+[0-9]{1,3}[-. ])?(\(?[0-9]{3}\)?[-. ])?\b[0-9]{3}[-.][0-9]{4}\b", |found, around| {
            let groups: Vec<String> = found
                .get_match()
                .as_str()
                .split(|c: char| !c.is_ascii_digit())
                .map(digits)
                .filter(|g| !g.is_empty())
                .collect();
            (!around.touches_word() && around.after != Some('-')).then(|| groups.join(", "))
        }),
        Rule::new(r"\b([0-9]{1,4})(\s?[-–—]\s?)([0-9]{1,4})\b", |found, around| {
            let (from, dash, to) = (group(found, 1), group(found, 2), group(found, 3));
            let word = if dash == " - " { "minus" } else { "to" };
            let chained = around.touches_word() || [around.before, around.after].contains(&Some('-'));
            (!chained).then(|| format!("{} {word} {}", plain(from), plain(to)))
        }),
        Rule::new(r"\b([0-9]+)\s?[x×]\s?([0-9]+)\b", |found, _| {
            Some(format!("{} by {}", cardinal(group(found, 1)), cardinal(group(found, 2))))
        }),
        Rule::new(r"\b([0-9]+):([0-9]+)\b", |found, _| {
            Some(format!("{} to {}", cardinal(group(found, 1)), cardinal(group(found, 2))))
        }),
        Rule::new(r"\b([0-9][0-9,]*)(?:st|nd|rd|th)\b", |found, _| Some(ordinal(&group(found, 1).replace(',', "")))),
        Rule::new(&format!(r"\b({NUMBER})([kKMB])\b(\s[A-Z])?"), |found, around| {
            // A letter before a name is part of an address: 221B Baker Street.
            let next = group(found, 3);
            let scale = match group(found, 2) {
                "B" if !next.is_empty() => return None,
                "M" => "million",
                "B" => "billion",
                _ => "thousand",
            };
            let whole = !next.is_empty() || !around.touches_word();
            whole.then(|| format!("{} {scale}{next}", plain(group(found, 1))))
        }),
        Rule::new(r"[0-9]+(?:\.[0-9]+){2,}", |found, _| {
            let parts: Vec<String> = found.get_match().as_str().split('.').map(cardinal).collect();
            Some(parts.join(" point "))
        }),
        Rule::new(&format!(r"([-+])({NUMBER})"), |found, around| {
            let stands_free = around.before.is_none_or(|c| c.is_whitespace() || "(\"“—".contains(c));
            let word = if group(found, 1) == "-" { "minus" } else { "plus" };
            stands_free
                .then(|| format!("{word} {}", spaced(&plain(group(found, 2)), Around { before: None, ..around })))
        }),
        Rule::new(&format!(r"(-?)({NUMBER})(-?)"), plain_figures),
    ]
}

/// Reads what no other rule read; figures inside a word stand apart from its letters.
fn plain_figures(found: &Captures<'_>, around: Around) -> Option<String> {
    let (before, number, after) = (group(found, 1), group(found, 2), group(found, 3));
    let in_name = around.before.is_some_and(char::is_alphabetic);
    let words = match number.len() {
        3 if in_name && !number.contains(['.', ',', '0']) => {
            format!("{} {}", cardinal(&number[..1]), cardinal(&number[1..]))
        }
        _ => plain(number),
    };
    let open = if before.is_empty() { "" } else { " " };
    let close = if after.is_empty() { "" } else { " " };
    Some(format!("{open}{}{close}", spaced(&words, around)))
}

fn spaced(words: &str, around: Around) -> String {
    let space = |c: Option<char>| if c.is_some_and(char::is_alphanumeric) { " " } else { "" };
    format!("{}{words}{}", space(around.before), space(around.after))
}

/// Returns a proper fraction with a small or round denominator in words.
fn fraction(a: &str, b: &str) -> Option<String> {
    let (over, under): (u32, u32) = (a.parse().ok()?, b.parse().ok()?);
    if over == 0 || over >= under || !(under <= 10 || [12, 16, 20, 32, 64, 100].contains(&under)) {
        return None;
    }
    let part = match under {
        2 => "half".to_owned(),
        4 => "quarter".to_owned(),
        _ => ordinal(b),
    };
    Some(format!("{} {part}{}", cardinal(&over.to_string()), if over == 1 { "" } else { "s" }))
}
