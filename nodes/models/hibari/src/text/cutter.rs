//! Cuts a text that arrives in pieces into sentences, one character at a time: what comes out is a function
//! of the text alone, never of how it was split. Memory is bounded by the longest sentence.

/// The most characters of a sentence; a longer one is cut at a clause, else at a word, else where it stands.
pub const MAX_CHARS: usize = 240;
/// From this length on the first sentence may be cut at a clause already, so that speech starts sooner.
pub const FIRST_CHARS: usize = 40;

/// Words whose full stop never ends a sentence.
const TITLES: [&str; 36] = [
    "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "Mt", "Ft", "Gen", "Gov", "Sen", "Rep", "Capt", "Lt", "Col", "Sgt", "Cmdr",
    "Rev", "Hon", "Pres", "Supt", "Cpl", "Maj", "Adm", "Fr", "Msgr", "vs", "cf", "e.g", "i.e", "approx", "ca", "viz",
    "resp", "incl", "al",
];
/// Words whose full stop ends no sentence when a figure follows.
const BEFORE_FIGURE: [&str; 25] = [
    "No", "Nos", "no", "nos", "Fig", "fig", "Vol", "vol", "p", "pp", "ch", "Ch", "Sec", "sec", "Jan", "Feb", "Mar",
    "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov",
];
const CLOSERS: [char; 8] = ['"', '\'', '”', '’', ')', ']', '»', '*'];
const OPENERS: [char; 8] = ['"', '\'', '“', '‘', '(', '[', '«', '*'];
const CLAUSE_MARKS: [char; 6] = [',', ';', ':', '—', '–', ')'];
const WIDE_ENDS: [char; 3] = ['。', '！', '？'];

/// The white space seen since the last character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Gap {
    #[default]
    None,
    Space,
    Line,
    Paragraph,
}

/// Turns pieces of text into sentences.
///
/// ```
/// let mut cutter = mstar_hibari::text::SentenceCutter::default();
/// assert!(cutter.push("Dr. Smith paid $3.").is_empty());
/// assert_eq!(cutter.push("50. Then he le"), ["Dr. Smith paid $3.50."]);
/// assert_eq!(cutter.push("ft."), [] as [String; 0]);
/// assert_eq!(cutter.finish(), Some("Then he left.".to_owned()));
/// ```
#[derive(Debug, Clone, Default)]
pub struct SentenceCutter {
    pending: String,
    chars: usize,
    gap: Gap,
    started: bool,
}

impl SentenceCutter {
    /// Takes the next piece and returns the sentences that it completed.
    pub fn push(&mut self, piece: &str) -> Vec<String> {
        let mut sentences = Vec::new();
        for c in piece.chars() {
            if c.is_whitespace() {
                self.widen_gap(c);
            } else {
                self.push_char(c, &mut sentences);
            }
        }
        sentences
    }

    /// Returns what remains as the last sentence and starts anew.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(self).pending;
        (!rest.is_empty()).then_some(rest)
    }

    fn widen_gap(&mut self, c: char) {
        let breaks_line = matches!(c, '\n' | '\u{2028}' | '\u{2029}');
        self.gap = match (self.gap, breaks_line) {
            (Gap::Line | Gap::Paragraph, true) => Gap::Paragraph,
            (gap, true) => gap.max(Gap::Line),
            (gap, false) => gap.max(Gap::Space),
        };
    }

    fn push_char(&mut self, c: char, sentences: &mut Vec<String>) {
        let gap = std::mem::take(&mut self.gap);
        if !self.pending.is_empty() {
            let early = !self.started && self.chars >= FIRST_CHARS && self.pending.ends_with(CLAUSE_MARKS);
            if ends_sentence(&self.pending, gap, c) || (early && gap > Gap::None) {
                self.cut(self.pending.len(), sentences);
            } else if gap > Gap::None {
                self.append(' ');
            }
        }
        self.append(c);
        if self.chars > MAX_CHARS {
            self.cut(best_cut(&self.pending), sentences);
        }
    }

    fn append(&mut self, c: char) {
        self.pending.push(c);
        self.chars += 1;
    }

    fn cut(&mut self, at: usize, sentences: &mut Vec<String>) {
        let rest = self.pending[at..].trim_start().to_owned();
        self.pending.truncate(at);
        self.pending.truncate(self.pending.trim_end().len());
        sentences.push(std::mem::replace(&mut self.pending, rest));
        self.chars = self.pending.chars().count();
        self.started = true;
    }
}

/// Returns whether a sentence ends after `body`, given the white space that follows and the next character.
fn ends_sentence(body: &str, gap: Gap, next: char) -> bool {
    if body.ends_with(WIDE_ENDS) {
        return !CLOSERS.contains(&next) && !WIDE_ENDS.contains(&next);
    }
    let core = body.trim_end_matches(CLOSERS);
    let stopped = core.ends_with(['.', '!', '?', '…']);
    match gap {
        Gap::None => false,
        Gap::Paragraph => true,
        Gap::Line if stopped || !next.is_lowercase() => !is_list_mark(core),
        Gap::Line | Gap::Space if !stopped || next.is_lowercase() => false,
        Gap::Line | Gap::Space => !core.ends_with('.') || stop_ends(core, next),
    }
}

/// Returns whether the full stop at the end of `core` ends a sentence rather than an abbreviation.
fn stop_ends(core: &str, next: char) -> bool {
    let word = core.rsplit(' ').next().unwrap_or(core).trim_start_matches(OPENERS);
    let word = word.strip_suffix('.').unwrap_or(word);
    let mut letters = word.chars();
    let initial = matches!((letters.next(), letters.next()), (Some(c), None) if c.is_uppercase() && c != 'I');
    let dotted = word.contains('.') && word.chars().all(|c| c == '.' || c.is_uppercase());
    let spells_half_day = matches!(word.to_ascii_lowercase().as_str(), "a.m" | "p.m");
    let dotted = dotted && !spells_half_day && !word.starts_with('.');
    let numbering = next.is_ascii_digit() && BEFORE_FIGURE.contains(&word);
    !(initial || dotted || numbering || TITLES.contains(&word) || is_list_mark(core))
}

/// Returns whether a sentence so far is only the mark of a list item: `1.`, `a)`, `-`.
fn is_list_mark(core: &str) -> bool {
    let mark = core.trim_end_matches(['.', ')']);
    !mark.is_empty() && mark.chars().count() <= 3 && mark.chars().all(|c| c.is_ascii_digit() || "-*•#+".contains(c))
}

/// Returns the byte at which a sentence that grew too long is cut best.
fn best_cut(text: &str) -> usize {
    let floor = text.len() / 4;
    let spaces = || text.match_indices(' ').map(|(at, _)| at).filter(|&at| at >= floor);
    let clause = spaces().rfind(|&at| text[..at].ends_with(CLAUSE_MARKS) || text[at + 1..].starts_with('('));
    let last_char = text.char_indices().next_back().map_or(0, |(at, _)| at);
    clause.or_else(|| spaces().next_back()).unwrap_or(last_char)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str) -> Vec<String> {
        let mut cutter = SentenceCutter::default();
        let mut sentences = cutter.push(text);
        sentences.extend(cutter.finish());
        sentences
    }

    #[test]
    fn sentences_end_where_a_reader_would_pause() {
        for (text, count) in [
            ("Hello there. How are you? Fine!", 3),
            ("Dr. Smith met Mr. O'Neil. They spoke.", 2),
            ("It cost 3.50 dollars. No. 5 is alive.", 2),
            ("J. K. Rowling wrote it. I read it.", 2),
            ("So do I. You do not.", 2),
            ("See e.g. The Hague vs. Rome, approx. 3 km.", 1),
            ("The U.S. Government met at 9 a.m. Nobody came.", 2),
            ("He said \"Stop!\" and left. \"Go.\" She went.", 3),
            ("Wait... what? Well... Yes.", 3),
            ("A heading\n\nA paragraph that is\nwrapped. It ends.", 3),
            ("1. First item\n2. Second item\n- third", 3),
            ("", 0),
            ("   \n ", 0),
            ("你好。你好吗？", 2),
            ("Version 1.2.3 is out", 1),
        ] {
            assert_eq!(cut(text).len(), count, "{text:?}: {:?}", cut(text));
        }
    }

    #[test]
    fn long_sentences_are_cut_at_clauses_and_the_first_one_early() {
        let first = "When the first clause is long enough to speak,";
        assert_eq!(cut(&format!("{first} we speak it."))[0], first);
        let long = "word ".repeat(30) + "end, " + &"next ".repeat(40);
        let sentences = cut(&long);
        assert!(sentences[0].ends_with("end,"));
        assert!(cut(&"x".repeat(1000)).iter().all(|s| s.chars().count() <= MAX_CHARS));
    }

    fn bare(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    proptest! {
        #[test]
        fn pieces_never_matter_and_nothing_is_lost(
            words in prop::collection::vec(
                prop_oneof!["[a-zA-Z0-9é。,;:.!?)(\"' \n—-]{0,9}", Just("Mr. ".to_owned()), Just(". The ".to_owned())],
                0..120,
            ),
            cuts in prop::collection::vec(1_usize..12, 1..40),
        ) {
            let text = words.concat();
            let whole = cut(&text);
            let chars: Vec<char> = text.chars().collect();
            let mut cutter = SentenceCutter::default();
            let (mut pieces, mut at, mut turn) = (Vec::new(), 0, 0);
            while at < chars.len() {
                let end = chars.len().min(at + cuts[turn % cuts.len()]);
                pieces.extend(cutter.push(&chars[at..end].iter().collect::<String>()));
                (at, turn) = (end, turn + 1);
            }
            pieces.extend(cutter.finish());
            prop_assert_eq!(&pieces, &whole);
            prop_assert_eq!(bare(&whole.concat()), bare(&text));
            prop_assert!(whole.iter().all(|s| !s.trim().is_empty() && s.chars().count() <= MAX_CHARS));
        }
    }
}
