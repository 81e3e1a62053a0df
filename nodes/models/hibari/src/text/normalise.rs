//! Writes a sentence out the way it is spoken: figures, money, dates, times, units, abbreviations, addresses
//! and symbols become words. What has no reading at all is handed back, never dropped silently.

use super::rules::{self, Rule};

/// A sentence in words, and what of it could not be said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spoken {
    /// Letters, apostrophes, hyphens, spaces and punctuation only.
    pub text: String,
    /// The characters that have no reading (emoji, drawing signs), in order.
    pub unread: String,
}

/// The reader of written English; build it once, its patterns are compiled then.
///
/// ```
/// let normaliser = mstar_hibari::text::Normaliser::new();
/// let spoken = normaliser.speak("Dr. Smith paid $9.99 on March 3, 2024.");
/// assert_eq!(spoken.text, "Doctor Smith paid nine dollars and ninety nine cents on March third, twenty twenty four.");
/// ```
#[derive(Debug, Clone)]
pub struct Normaliser {
    rules: Vec<Rule>,
}

impl Normaliser {
    /// Compiles the rules.
    pub fn new() -> Self {
        Self { rules: rules::all() }
    }

    /// Returns the sentence as words.
    pub fn speak(&self, sentence: &str) -> Spoken {
        let clean = rules::marks::clean(sentence);
        let words = self.rules.iter().fold(clean, |text, rule| rule.apply(&text));
        rules::marks::say_symbols(&words)
    }
}

impl Default for Normaliser {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(cases: &[(&str, &str)]) {
        let normaliser = Normaliser::new();
        for (written, spoken) in cases {
            assert_eq!(
                normaliser.speak(written),
                Spoken { text: (*spoken).into(), unread: String::new() },
                "{written}"
            );
        }
    }

    #[test]
    fn figures_are_read() {
        check(&[
            ("1,250 people, 42 of them", "one thousand two hundred fifty people, forty two of them"),
            ("in 1969 and 2005", "in nineteen sixty nine and two thousand five"),
            ("pi is 3.14", "pi is three point one four"),
            ("the 1st, 22nd and 103rd", "the first, twenty second and one hundred third"),
            ("-5 or +7", "minus five or plus seven"),
            ("1/2 cup, 3/4 full, 2 1/2 miles", "one half cup, three quarters full, two and one half miles"),
            ("open 24/7", "open twenty four seven"),
            ("pages 5-10", "pages five to ten"),
            ("a 3:1 ratio", "a three to one ratio"),
            ("call 555-0123", "call five five five, zero one two three"),
            ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
            ("version 1.2.3", "version one point two point three"),
            ("B2B and COVID-19", "B two B and COVID nineteen"),
            ("5 - 3 = 2", "five minus three equals two"),
            ("a 4x4 grid", "a four by four grid"),
            ("1,2,3", "one, two, three"),
            ("007", "zero zero seven"),
            ("221B Baker, 7B parameters", "two hundred twenty one B Baker, seven billion parameters"),
        ]);
    }

    #[test]
    fn money_dates_and_times_are_read() {
        check(&[
            ("$9.99", "nine dollars and ninety nine cents"),
            ("$1 or £0.50", "one dollar or fifty pence"),
            ("€2.5 million", "two point five million euros"),
            ("$3B", "three billion dollars"),
            ("20 USD, 5€", "twenty dollars, five euros"),
            ("March 3rd, 2024", "March third, twenty twenty four"),
            ("On the 3rd of March 2024,", "On the third of March twenty twenty four,"),
            ("3 Sept. 1999", "the third of September nineteen ninety nine"),
            ("2024-03-05", "March fifth, twenty twenty four"),
            ("7/4/1776", "July fourth, seventeen seventy six"),
            ("at 9:45 am.", "at nine forty-five A.M."),
            ("at 10:00 or 7:05 p.m. today", "at ten o'clock or seven oh five P.M today"),
            ("5pm", "five P.M"),
            ("May 2024", "May twenty twenty four"),
        ]);
    }

    #[test]
    fn measures_and_symbols_are_read() {
        check(&[
            ("42 km away", "forty two kilometers away"),
            ("1 kg, 5 ft, 60 mph", "one kilogram, five feet, sixty miles per hour"),
            ("99% sure", "ninety nine percent sure"),
            ("-5°C or 70 °F", "minus five degrees Celsius or seventy degrees Fahrenheit"),
            ("salt & pepper @ home", "salt and pepper at home"),
            ("x² + y", "x squared plus y"),
            ("and/or", "and slash or"),
            ("me@example.com", "me at example dot com"),
            ("see https://www.rust-lang.org/learn.", "see W W W dot rust dash lang dot org slash learn."),
            ("**bold** `code` [link](http://x.y)", "bold code link"),
            ("# Title", "Title"),
            ("- item", "item"),
            ("#5 is #trending", "number five is hashtag trending"),
        ]);
    }

    #[test]
    fn abbreviations_are_read() {
        check(&[
            ("Dr. Smith and Mr. O'Neil", "Doctor Smith and Mister O'Neil"),
            ("St. Paul, 5 Main St.", "Saint Paul, five Main Street."),
            ("e.g. apples, i.e. fruit, etc.", "for example apples, that is fruit, et cetera."),
            ("No. 5 vs. No. 6", "number five versus number six"),
            ("World War II and Henry VIII", "World War two and Henry the eighth"),
            ("Chapter IV", "Chapter four"),
            ("“It’s” – fine…", "“It's” — fine…"),
        ]);
    }

    #[test]
    fn what_cannot_be_said_is_handed_back() {
        let spoken = Normaliser::new().speak("Nice 😀 work ◆");
        assert_eq!((spoken.text.as_str(), spoken.unread.as_str()), ("Nice work", "😀◆"));
    }

    proptest! {
        #[test]
        fn any_text_becomes_words(text in "\\PC{0,60}|[0-9$€%.,:/a-zA-Z -]{0,40}") {
            let spoken = Normaliser::new().speak(&text);
            prop_assert!(!spoken.text.chars().any(|c| c.is_ascii_digit()), "{}", spoken.text);
            prop_assert!(spoken.text.chars().all(rules::marks::is_speakable), "{}", spoken.text);
        }
    }
}
