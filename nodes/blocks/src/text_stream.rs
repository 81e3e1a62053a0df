//! Text as it is sampled: tokens in, complete characters out, stop strings matched before anyone sees them.

use std::sync::Arc;

use mstar_contract::Detokenizer;

/// An incremental detokeniser with a stop matcher behind it.
///
/// Whatever the tokens' boundaries, the pieces and the rest of [`TextStream::finish`] join to the same text: the bytes
/// of all tokens, read as UTF-8 (bytes that cannot be become U+FFFD), cut where the first stop string to be complete
/// begins.
pub struct TextStream {
    tokens: Arc<dyn Detokenizer>,
    stops: Vec<String>,
    /// Bytes of a character that is not complete yet.
    bytes: Vec<u8>,
    /// Text that may turn out to begin a stop string.
    held: String,
    stopped: bool,
}

/// What a token adds to the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text that is certain now.
    pub text: String,
    /// Whether a stop string is complete; then no more text comes.
    pub stopped: bool,
}

// --- impl TextStream ---

impl TextStream {
    /// Returns a stream that ends at any of these stop strings; empty ones are ignored.
    pub fn new(tokens: Arc<dyn Detokenizer>, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { tokens, stops, bytes: Vec::new(), held: String::new(), stopped: false }
    }

    /// Takes a token and returns the text that has become certain.
    pub fn push(&mut self, token: u32) -> Piece {
        if self.stopped {
            return Piece { text: String::new(), stopped: true };
        }
        self.bytes.extend_from_slice(self.tokens.bytes(token));
        let complete = self.take_characters();
        self.match_stops(&complete)
    }

    /// Returns the text still held back: the output has ended. The stream is empty afterwards.
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned();
        let mut piece = self.match_stops(&rest);
        piece.text.push_str(&std::mem::take(&mut self.held));
        self.stopped = true;
        piece.text
    }

    /// Moves complete characters out of the bytes.
    fn take_characters(&mut self) -> String {
        let mut out = String::new();
        let mut rest: &[u8] = &self.bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, tail) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(valid));
                    rest = tail;
                    let Some(broken) = error.error_len() else { break };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[broken..];
                }
            }
        }
        self.bytes = rest.to_vec();
        out
    }

    /// Adds text and returns what no stop string can take back any more.
    fn match_stops(&mut self, text: &str) -> Piece {
        self.held.push_str(text);
        let ends = |stop: &String| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at));
        if let Some((_, at)) = self.stops.iter().filter_map(ends).min() {
            self.stopped = true;
            self.held.truncate(at);
            return Piece { text: std::mem::take(&mut self.held), stopped: true };
        }
        let keep = self.held.len() - self.open_prefix();
        let later = self.held.split_off(keep);
        Piece { text: std::mem::replace(&mut self.held, later), stopped: false }
    }

    /// Returns the length of the longest end of the held text that begins a stop string.
    fn open_prefix(&self) -> usize {
        let longest = |stop: &String| {
            (1..stop.len().min(self.held.len() + 1))
                .rev()
                .find(|&n| self.held.as_bytes().ends_with(&stop.as_bytes()[..n]))
        };
        // A suffix that equals the first bytes of a string begins where a character begins.
        self.stops.iter().filter_map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Token n stands for the n-th of these byte strings.
    struct Table(Vec<Vec<u8>>);

    impl Detokenizer for Table {
        fn bytes(&self, token: u32) -> &[u8] {
            &self.0[token as usize]
        }
    }

    fn stream(pieces: &[&[u8]], stops: &[&str]) -> (Vec<Piece>, String) {
        let table = Arc::new(Table(pieces.iter().map(|p| p.to_vec()).collect()));
        let mut stream = TextStream::new(table, stops.iter().map(|s| (*s).to_owned()).collect());
        let out = (0..pieces.len() as u32).map(|token| stream.push(token)).collect();
        (out, stream.finish())
    }

    #[test]
    fn a_character_waits_until_it_is_whole() {
        let (pieces, rest) = stream(&[b"a\xf0\x9f", b"\x99", b"\x82!"], &[]);
        let texts: Vec<&str> = pieces.iter().map(|p| p.text.as_str()).collect();
        assert_eq!(texts, ["a", "", "🙂!"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn an_unfinished_character_at_the_end_becomes_a_replacement() {
        let (pieces, rest) = stream(&[b"a\xf0\x9f"], &[]);
        assert_eq!((pieces[0].text.as_str(), rest.as_str()), ("a", "\u{fffd}"));
    }

    #[test]
    fn a_stop_string_across_tokens_is_never_seen() {
        let (pieces, rest) = stream(&[b"one EN", b"D", b" two"], &["END"]);
        assert_eq!(pieces[0], Piece { text: "one ".into(), stopped: false });
        assert_eq!(pieces[1], Piece { text: String::new(), stopped: true });
        assert_eq!(pieces[2], Piece { text: String::new(), stopped: true });
        assert_eq!(rest, "");
    }

    #[test]
    fn text_that_only_looked_like_a_stop_string_comes_later() {
        let (pieces, rest) = stream(&[b"one EN", b"TRY E"], &["END"]);
        assert_eq!((pieces[0].text.as_str(), pieces[1].text.as_str(), rest.as_str()), ("one ", "ENTRY ", "E"));
    }

    #[test]
    fn the_stop_string_complete_first_wins() {
        let (pieces, _) = stream(&[b"xabc"], &["abc", "b"]);
        assert_eq!(pieces[0], Piece { text: "xa".into(), stopped: true });
    }

    /// The definition: read everything, find the first stop string to be complete, cut where it begins.
    fn at_once(bytes: &[u8], stops: &[String]) -> String {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let ends = |stop: &String| text.find(stop.as_str()).map(|at| (at + stop.len(), at));
        match stops.iter().filter(|s| !s.is_empty()).filter_map(ends).min() {
            Some((_, at)) => text[..at].to_owned(),
            None => text,
        }
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_text_read_at_once(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..12),
        ) {
            let whole = pieces.concat();
            let table = Arc::new(Table(pieces.clone()));
            let mut stream = TextStream::new(table, vec![]);
            let mut text: String = (0..pieces.len() as u32).map(|token| stream.push(token).text).collect();
            text.push_str(&stream.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }

        #[test]
        fn stops_cut_at_the_same_place_wherever_tokens_end(
            text in "[abé🙂]{0,24}",
            stops in prop::collection::vec("[abé🙂]{0,4}", 0..4),
            cuts in prop::collection::vec(0usize..80, 0..12),
        ) {
            let bytes = text.as_bytes();
            let mut ends: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).chain([0, bytes.len()]).collect();
            ends.sort_unstable();
            let pieces: Vec<Vec<u8>> = ends.windows(2).map(|w| bytes[w[0]..w[1]].to_vec()).collect();
            let mut stream = TextStream::new(Arc::new(Table(pieces.clone())), stops.clone());
            let mut out = String::new();
            for token in 0..pieces.len() as u32 {
                out.push_str(&stream.push(token).text);
            }
            out.push_str(&stream.finish());
            prop_assert_eq!(out, at_once(bytes, &stops));
        }
    }
}
