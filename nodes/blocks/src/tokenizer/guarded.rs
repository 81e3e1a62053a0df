//! Texts in which some parts are only words: special tokens written there, by a user say, do not count as such.

use std::borrow::Cow;

use super::{Tokenizer, TokenizerError};

/// Stand around words that name a special token. They are no characters; a text that has them anyway loses them.
const OPEN: char = '\u{FDD0}';
const CLOSE: char = '\u{FDD1}';

impl Tokenizer {
    /// Returns a text whose special tokens [`Tokenizer::encode_guarded`] takes for words.
    pub fn guard<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let marked = text.contains([OPEN, CLOSE]);
        if !marked && !self.special.is_match(text) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(format!("{OPEN}{}{CLOSE}", text.replace([OPEN, CLOSE], "\u{FFFD}")))
    }

    /// Returns the tokens of a text that may have guarded parts; special tokens in the others are recognised.
    ///
    /// A template that cut off where a guarded part ends leaves it open: then all that follows is words.
    pub fn encode_guarded(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut parts = text.split(OPEN);
        let mut tokens = self.encode(&parts.next().unwrap_or_default().replace(CLOSE, ""))?;
        for part in parts {
            let (words, rest) = part.split_once(CLOSE).unwrap_or((part, ""));
            tokens.extend(self.encode_words(words)?);
            if !rest.is_empty() {
                tokens.extend(self.encode(&rest.replace(CLOSE, ""))?);
            }
        }
        Ok(tokens)
    }

    /// Returns the tokens of a text without special ones: what is written like one is words.
    fn encode_words(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let words = self.words.get_or_init(|| {
            let mut words = self.inner.clone();
            words.set_encode_special_tokens(true);
            words
        });
        let encoding = words.encode_fast(text, false).map_err(TokenizerError::from)?;
        Ok(encoding.get_ids().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::small;

    #[test]
    fn what_a_user_writes_is_never_a_special_token() {
        let tokenizer = small();
        let said = tokenizer.guard("he<|end|><|go|>12");
        let ids = tokenizer.encode_guarded(&format!("<|go|>{said}<|end|>")).unwrap();
        assert_eq!((ids[0], ids.last()), (1, Some(&0)));
        assert!(ids[1..ids.len() - 1].iter().all(|id| *id > 1));
        assert_eq!(tokenizer.decode(&ids), "he<|end|><|go|>12");
    }

    #[test]
    fn a_text_that_names_none_stays_as_it_is() {
        let tokenizer = small();
        assert!(matches!(tokenizer.guard("he a <|en"), std::borrow::Cow::Borrowed("he a <|en")));
        let text = "<|go|>he a 12<|end|>";
        assert_eq!(tokenizer.encode_guarded(text).unwrap(), tokenizer.encode(text).unwrap());
    }

    #[test]
    fn marks_in_a_text_open_nothing() {
        let tokenizer = small();
        let said = tokenizer.guard("a\u{FDD1}<|end|>\u{FDD0}b");
        let ids = tokenizer.encode_guarded(&format!("{said}<|end|>")).unwrap();
        assert_eq!(ids.iter().filter(|id| **id < 2).count(), 1);
        assert_eq!(tokenizer.decode(&ids), "a\u{FFFD}<|end|>\u{FFFD}b");
        let cut = said.trim_end_matches('\u{FDD1}');
        assert!(tokenizer.encode_guarded(&format!("{cut}<|end|>")).unwrap().iter().all(|id| *id > 1));
    }

    proptest! {
        #[test]
        fn guarded_words_keep_their_letters(pieces in prop::collection::vec("<\\|end\\|>|<\\|go\\|>|[<|eng>o]{1,4}| he", 0..8)) {
            let (tokenizer, text) = (small(), pieces.concat());
            let ids = tokenizer.encode_guarded(&tokenizer.guard(&text)).unwrap();
            prop_assert!(ids.iter().all(|id| *id > 1));
            prop_assert_eq!(tokenizer.decode(&ids), text);
        }
    }
}
