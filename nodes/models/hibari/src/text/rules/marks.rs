//! Single characters: the many forms of quotes, dashes and spaces at the start, symbols and punctuation at the end.

use super::super::normalise::Spoken;

/// The punctuation that the network's alphabet has, and what stays inside words.
const SPEAKABLE: &str = ";:,.!?—…\"()“”'-";
const PAUSES: [char; 8] = [',', ';', ':', '.', '!', '?', '—', '…'];

/// Returns whether a character may stand in a spoken text.
pub(in super::super) fn is_speakable(c: char) -> bool {
    c == ' ' || c.is_alphabetic() || is_combining(c) || SPEAKABLE.contains(c)
}

/// Returns the text with every form of quote, dash, space, full-width letter and ligature in its plain form,
/// and without the characters that only steer layout.
pub(in super::super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '‘' | '’' | '‚' | '‛' | '′' | 'ʼ' => out.push('\''),
            '„' | '«' => out.push('“'),
            '»' => out.push('”'),
            '″' | '‟' => out.push('"'),
            '‐' | '‑' | '‒' | '−' | '﹣' => out.push('-'),
            '―' => out.push('—'),
            'ﬀ' => out.push_str("ff"),
            'ﬁ' => out.push_str("fi"),
            'ﬂ' => out.push_str("fl"),
            '。' => out.push_str(". "),
            '、' => out.push_str(", "),
            'μ' => out.push('µ'),
            '½' => out.push_str(vulgar(&out, "one half")),
            '¼' => out.push_str(vulgar(&out, "one quarter")),
            '¾' => out.push_str(vulgar(&out, "three quarters")),
            '⅓' => out.push_str(vulgar(&out, "one third")),
            '⅔' => out.push_str(vulgar(&out, "two thirds")),
            '\u{FF01}'..='\u{FF5E}' => out.extend(char::from_u32(u32::from(c) - 0xFEE0)),
            c if c.is_whitespace() => out.push(' '),
            c if steers_layout(c) => {}
            c => out.push(c),
        }
    }
    squeeze(&out)
}

/// Returns the text with its symbols said, and apart what has no reading.
pub(in super::super) fn say_symbols(text: &str) -> Spoken {
    let (mut words, mut unread) = (String::with_capacity(text.len()), String::new());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let inside_word = words.ends_with(char::is_alphabetic) && chars.peek().is_some_and(|n| n.is_alphabetic());
        match c {
            '-' if inside_word => words.push('-'),
            '-' | '–' => words.push_str(if words.ends_with(' ') || words.is_empty() { "— " } else { " " }),
            ',' if inside_word => words.push_str(", "),
            '[' | '{' => words.push('('),
            ']' | '}' => words.push(')'),
            c if is_speakable(c) => words.push(c),
            c => match symbol(c) {
                Some(name) => words.extend([" ", name, " "]),
                None => {
                    words.push(' ');
                    unread.push(c);
                }
            },
        }
    }
    Spoken { text: tidy(&words), unread }
}

fn symbol(c: char) -> Option<&'static str> {
    Some(match c {
        '&' => "and",
        '@' => "at",
        '+' => "plus",
        '=' => "equals",
        '<' => "less than",
        '>' => "greater than",
        '×' | '∗' | '*' => "times",
        '÷' => "divided by",
        '±' => "plus or minus",
        '≈' | '~' => "about",
        '≤' => "at most",
        '≥' => "at least",
        '≠' => "is not",
        '→' => "to",
        '%' => "percent",
        '‰' => "per mille",
        '°' => "degrees",
        '²' => "squared",
        '³' => "cubed",
        '√' => "square root of",
        '∞' => "infinity",
        '§' => "section",
        '¶' => "paragraph",
        '©' => "copyright",
        '®' => "registered",
        '™' => "trademark",
        '$' => "dollar",
        '£' => "pound",
        '€' => "euro",
        '¥' => "yen",
        '¢' => "cents",
        '₹' => "rupee",
        '₩' => "won",
        '/' => "slash",
        '\\' => "backslash",
        '^' => "to the power of",
        '#' => "hashtag",
        '`' => "backtick",
        '|' | '•' | '·' => ",",
        '_' => "",
        '¿' | '¡' => "",
        _ => return None,
    })
}

/// Returns the words of a fraction sign; after a figure they join it: `2½` is "two and one half".
fn vulgar<'a>(before: &str, words: &'a str) -> &'a str {
    match (before.ends_with(|c: char| c.is_ascii_digit()), words) {
        (true, "one half") => " and one half",
        (true, "one quarter") => " and one quarter",
        (true, "three quarters") => " and three quarters",
        (true, "one third") => " and one third",
        (true, "two thirds") => " and two thirds",
        _ => words,
    }
}

fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36F}')
}

fn steers_layout(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}')
}

fn squeeze(text: &str) -> String {
    text.replace("...", "…").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text with single spaces, no space before a pause, no pause at the start and no pause twice.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let pause = PAUSES.contains(&c);
        if pause && c != '—' {
            out.truncate(out.trim_end().len());
        }
        let repeated = pause && out.trim_end().ends_with(PAUSES) && !out.ends_with(".M");
        let leading = out.is_empty() && (c == ' ' || pause);
        if !(repeated || leading || (c == ' ' && out.ends_with([' ', '(']))) {
            out.push(c);
        }
    }
    out.truncate(out.trim_end_matches([' ', '—', '-']).len());
    out
}
