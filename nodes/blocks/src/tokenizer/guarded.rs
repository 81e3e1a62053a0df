//! Texts in which some parts are only words: special tokens written there, by a user say, do not count as such.

use std::borrow::Cow;

use super::{Tokenizer, TokenizerError};

/// Stands in special tokens that are only words. A code point that is no character, so that no text has it.
const MARK: char = '\u{FDD0}';

impl Tokenizer {
    /// Returns a text whose special tokens [`Tokenizer::encode_guarded`] takes for words.
    pub fn guard<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let (mut guarded, mut from) = (String::new(), 0);
        for special in self.special.find_iter(text) {
            let first = text[special.range()].chars().next().map_or(0, char::len_utf8);
            guarded.push_str(&text[from..special.start() + first]);
            guarded.push(MARK);
            from = special.start() + first;
        }
        if from == 0 {
            return Cow::Borrowed(text);
        }
        guarded.push_str(&text[from..]);
        Cow::Owned(guarded)
    }

    /// Returns the tokens of a text that may have guarded parts; special tokens in the others are recognised.
    pub fn encode_guarded(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if !text.contains(MARK) {
            return self.encode(text);
        }
        let (mut tokens, mut from) = (Vec::new(), 0);
        for special in self.special.find_iter(text) {
            tokens.extend(self.encode_words(&text[from..special.start()])?);
            tokens.extend(self.id(&text[special.range()]));
            from = special.end();
        }
        tokens.extend(self.encode_words(&text[from..])?);
        Ok(tokens)
    }

    /// Returns the tokens of a text without special ones: what is written like one is words.
    fn encode_words(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if !text.contains(MARK) {
            return self.encode(text);
        }
        let words = self.words.get_or_init(|| {
            let mut words = self.inner.clone();
            words.set_encode_special_tokens(true);
            words
        });
        let encoding = words.encode_fast(text.replace(MARK, ""), false).map_err(TokenizerError::from)?;
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
