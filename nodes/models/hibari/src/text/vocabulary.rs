//! The network's alphabet: 114 phonemes and punctuation marks of the 178 rows of its embedding.

/// A symbol and its id; 0 pads both ends of a sentence.
const SYMBOLS: [(char, u32); 114] = [
    (';', 1),
    (':', 2),
    (',', 3),
    ('.', 4),
    ('!', 5),
    ('?', 6),
    ('—', 9),
    ('…', 10),
    ('"', 11),
    ('(', 12),
    (')', 13),
    ('“', 14),
    ('”', 15),
    (' ', 16),
    ('\u{303}', 17),
    ('ʣ', 18),
    ('ʥ', 19),
    ('ʦ', 20),
    ('ʨ', 21),
    ('ᵝ', 22),
    ('ꭧ', 23),
    ('A', 24),
    ('I', 25),
    ('O', 31),
    ('Q', 33),
    ('S', 35),
    ('T', 36),
    ('W', 39),
    ('Y', 41),
    ('ᵊ', 42),
    ('a', 43),
    ('b', 44),
    ('c', 45),
    ('d', 46),
    ('e', 47),
    ('f', 48),
    ('h', 50),
    ('i', 51),
    ('j', 52),
    ('k', 53),
    ('l', 54),
    ('m', 55),
    ('n', 56),
    ('o', 57),
    ('p', 58),
    ('q', 59),
    ('r', 60),
    ('s', 61),
    ('t', 62),
    ('u', 63),
    ('v', 64),
    ('w', 65),
    ('x', 66),
    ('y', 67),
    ('z', 68),
    ('ɑ', 69),
    ('ɐ', 70),
    ('ɒ', 71),
    ('æ', 72),
    ('β', 75),
    ('ɔ', 76),
    ('ɕ', 77),
    ('ç', 78),
    ('ɖ', 80),
    ('ð', 81),
    ('ʤ', 82),
    ('ə', 83),
    ('ɚ', 85),
    ('ɛ', 86),
    ('ɜ', 87),
    ('ɟ', 90),
    ('ɡ', 92),
    ('ɥ', 99),
    ('ɨ', 101),
    ('ɪ', 102),
    ('ʝ', 103),
    ('ɯ', 110),
    ('ɰ', 111),
    ('ŋ', 112),
    ('ɳ', 113),
    ('ɲ', 114),
    ('ɴ', 115),
    ('ø', 116),
    ('ɸ', 118),
    ('θ', 119),
    ('œ', 120),
    ('ɹ', 123),
    ('ɾ', 125),
    ('ɻ', 126),
    ('ʁ', 128),
    ('ɽ', 129),
    ('ʂ', 130),
    ('ʃ', 131),
    ('ʈ', 132),
    ('ʧ', 133),
    ('ʊ', 135),
    ('ʋ', 136),
    ('ʌ', 138),
    ('ɣ', 139),
    ('ɤ', 140),
    ('χ', 142),
    ('ʎ', 143),
    ('ʒ', 147),
    ('ʔ', 148),
    ('ˈ', 156),
    ('ˌ', 157),
    ('ː', 158),
    ('ʰ', 162),
    ('ʲ', 164),
    ('↓', 169),
    ('→', 171),
    ('↗', 172),
    ('↘', 173),
    ('ᵻ', 177),
];

/// Returns the id of a symbol.
pub fn id(symbol: char) -> Option<u32> {
    SYMBOLS.iter().find(|(known, _)| *known == symbol).map(|(_, id)| *id)
}

/// Returns the phonemes between two zeros, or nothing where there is no sound among them.
pub fn ids(phonemes: &str) -> Vec<u32> {
    if !phonemes.contains(char::is_alphabetic) {
        return Vec::new();
    }
    let symbols = phonemes.chars().filter_map(id);
    [0].into_iter().chain(symbols).chain([0]).collect()
}

/// Returns phonemes in pieces of at most `most` characters, cut at the last blank that allows it, else where they stand.
pub fn pieces(phonemes: &str, most: usize) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), phonemes);
    while let Some((end, next)) = rest.char_indices().nth(most.max(1)) {
        let blank = if next == ' ' { Some(end) } else { rest[..end].rfind(' ') };
        let at = blank.filter(|&at| at > 0).unwrap_or(end);
        pieces.push(&rest[..at]);
        rest = rest[at..].trim_start_matches(' ');
    }
    pieces.extend((!rest.is_empty()).then_some(rest));
    pieces
}

/// Returns the phonemes that the alphabet has, each white space as one blank; the others join `unread`.
pub(super) fn keep_known(phonemes: &str, unread: &mut String) -> String {
    let mut known = String::with_capacity(phonemes.len());
    for c in phonemes.chars() {
        match c {
            c if c.is_whitespace() && known.ends_with(' ') => {}
            c if c.is_whitespace() => known.push(' '),
            'ɾ' => known.push('T'),
            'ʔ' => known.push('t'),
            c if id(c).is_some() => known.push(c),
            c => unread.push(c),
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_lies_between_zeros() {
        assert_eq!(ids("həlˈO."), [0, 50, 83, 54, 156, 31, 4, 0]);
        assert!(ids("…").is_empty());
    }

    #[test]
    fn long_phonemes_are_cut_at_blanks_and_nothing_is_lost() {
        assert_eq!(pieces("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(pieces("ab cd ef", 4), ["ab", "cd", "ef"]);
        assert_eq!(pieces("ˈəˈəˈə", 4), ["ˈəˈə", "ˈə"]);
        assert_eq!(pieces("ab", 5), ["ab"]);
        assert!(pieces("", 5).is_empty());
    }

    #[test]
    fn unknown_sounds_are_handed_back() {
        let mut unread = String::new();
        assert_eq!(keep_known("a\u{a0} ❓bɾ", &mut unread), "a bT");
        assert_eq!(unread, "❓");
    }
}
