//! Addresses and the marks of formatted text.

use super::{Rule, group};

const DOMAINS: &str = "com|org|net|edu|gov|io|ai|dev|app|co|uk|de|fr|eu|us|ca|au|info";

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule::new(r"!?\[([^\]]*)\]\([^)\s]*\)", |found, _| Some(group(found, 1).to_owned())),
        Rule::new(r"(?i)\b(?:https?|ftp)://[^\s<>]*[\w/]", |found, _| {
            found.get_match().as_str().split_once("://").map(|(_, address)| spell(address))
        }),
        Rule::new(r"(?i)\bwww\.[^\s<>]*[\w/]", |found, _| Some(spell(found.get_match().as_str()))),
        Rule::new(r"[\w.+-]*\w@[\w-]+(?:\.[\w-]+)*\w", |found, _| Some(spell(found.get_match().as_str()))),
        Rule::new(&format!(r"\b(?:[A-Za-z0-9-]+\.)+(?:{DOMAINS})\b(?:/[^\s<>]*[\w/])?"), |found, around| {
            let part = around.before.is_some_and(|c| "@./-".contains(c)) || around.after == Some('@');
            (!part).then(|| spell(found.get_match().as_str()))
        }),
        Rule::new(r"^(?:#{1,6}|[-*•+>]) ", |_, _| Some(String::new())),
        Rule::new(r"(?:\*+|_{2,}|`+|~~)", |_, around| {
            let spaced = around.before == Some(' ') && around.after == Some(' ');
            let sum =
                around.before.is_some_and(|c| c.is_ascii_digit()) && around.after.is_some_and(|c| c.is_ascii_digit());
            Some(if spaced || sum { " times ".to_owned() } else { String::new() })
        }),
    ]
}

/// Returns an address with its marks named.
fn spell(address: &str) -> String {
    let mut words = String::with_capacity(2 * address.len());
    let (letters, rest) = address.strip_prefix("www.").map_or(("", address), |rest| ("W W W dot ", rest));
    words.push_str(letters);
    for c in rest.chars() {
        let name = match c {
            '.' => "dot",
            '/' => "slash",
            '-' => "dash",
            '_' => "underscore",
            ':' => "colon",
            '@' => "at",
            '?' => "question mark",
            '=' => "equals",
            '&' => "and",
            '#' => "hash",
            '%' => "percent",
            '+' => "plus",
            '~' => "tilde",
            c => {
                words.push(c);
                continue;
            }
        };
        words.extend([" ", name, " "]);
    }
    words.trim().to_owned()
}
