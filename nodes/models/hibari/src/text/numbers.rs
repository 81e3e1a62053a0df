//! English number words: cardinals, ordinals, years, decimals and single digits, written without
//! hyphens or "and", the way an American reads them aloud.

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [&str; 12] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
    "quintillion",
    "sextillion",
    "septillion",
    "octillion",
    "nonillion",
    "decillion",
];
/// The most digits that are read as one number; longer runs are read digit by digit.
const MAX_DIGITS: usize = 36;

/// Returns a run of ASCII digits as a cardinal: `1250` is "one thousand two hundred fifty".
///
/// Runs that no one reads as one number (a leading zero, more than 36 digits) come digit by digit.
pub fn cardinal(figures: &str) -> String {
    if figures.len() > MAX_DIGITS || (figures.len() > 1 && figures.starts_with('0')) {
        return digits(figures);
    }
    let groups = figures.len().div_ceil(3);
    let mut words: Vec<&str> = Vec::new();
    for group in 0..groups {
        let end = figures.len() - 3 * (groups - 1 - group);
        let value = figures[end.saturating_sub(3)..end].bytes().fold(0, |n, b| n * 10 + usize::from(b - b'0'));
        if value > 0 {
            push_below_1000(value, &mut words);
            words.push(SCALES[groups - 1 - group]);
        }
    }
    words.retain(|w| !w.is_empty());
    if words.is_empty() { ONES[0].to_owned() } else { words.join(" ") }
}

/// Returns a run of ASCII digits as an ordinal: `23` is "twenty third".
pub fn ordinal(figures: &str) -> String {
    let words = cardinal(figures.trim_start_matches('0'));
    let (head, last) = words.rsplit_once(' ').map_or(("", words.as_str()), |(head, last)| (head, last));
    let last = match last {
        "one" => "first".to_owned(),
        "two" => "second".to_owned(),
        "three" => "third".to_owned(),
        "five" => "fifth".to_owned(),
        "eight" => "eighth".to_owned(),
        "nine" => "ninth".to_owned(),
        "twelve" => "twelfth".to_owned(),
        word => word.strip_suffix('y').map_or_else(|| format!("{word}th"), |stem| format!("{stem}ieth")),
    };
    if head.is_empty() { last } else { format!("{head} {last}") }
}

/// Returns four digits as a year: `1969` is "nineteen sixty nine", `2005` "two thousand five".
pub fn year(figures: &str) -> String {
    let Some((high, low)) = figures.split_at_checked(2).filter(|_| figures.len() == 4) else {
        return cardinal(figures);
    };
    match (high, low) {
        ("10" | "20", _) if low.starts_with('0') => cardinal(figures),
        (_, "00") => format!("{} hundred", cardinal(high)),
        _ if low.starts_with('0') => format!("{} oh {}", cardinal(high), cardinal(&low[1..])),
        _ => format!("{} {}", cardinal(high), cardinal(low)),
    }
}

/// Returns a plain number of a text: grouping commas dropped, four digits between 1100 and 2099 as a year,
/// a fraction digit by digit.
pub fn plain(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let bare = whole.replace(',', "");
    let years = ("1100".."2100").contains(&bare.as_str()) && bare.len() == 4;
    let words = match bare.as_str() {
        "" => String::new(),
        bare if years && fraction.is_empty() && !whole.contains(',') => year(bare),
        bare => cardinal(bare),
    };
    match (words.is_empty(), fraction) {
        (_, "") => words,
        (true, _) => format!("point {}", digits(fraction)),
        (false, _) => format!("{words} point {}", digits(fraction)),
    }
}

/// Returns every digit by its name: `007` is "zero zero seven".
pub fn digits(figures: &str) -> String {
    let names: Vec<&str> = figures.bytes().filter(u8::is_ascii_digit).map(|b| ONES[usize::from(b - b'0')]).collect();
    names.join(" ")
}

/// Returns the plural of the last of some number words: "nineteen nineties", "twos", "sixes".
pub fn plural(words: &str) -> String {
    match words.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if words.ends_with('x') => format!("{words}es"),
        None => format!("{words}s"),
    }
}

fn push_below_1000(value: usize, words: &mut Vec<&str>) {
    if value >= 100 {
        words.extend([ONES[value / 100], "hundred"]);
    }
    match value % 100 {
        0 => {}
        rest @ 1..20 => words.push(ONES[rest]),
        rest if rest % 10 == 0 => words.push(TENS[rest / 10]),
        rest => words.extend([TENS[rest / 10], ONES[rest % 10]]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_say_them() {
        for (figures, words) in [
            ("0", "zero"),
            ("13", "thirteen"),
            ("42", "forty two"),
            ("100", "one hundred"),
            ("1000000", "one million"),
            ("1000001", "one million one"),
            ("987654", "nine hundred eighty seven thousand six hundred fifty four"),
            ("007", "zero zero seven"),
        ] {
            assert_eq!(cardinal(figures), words);
        }
        assert_eq!(cardinal(&"9".repeat(36)).split(' ').next_back(), Some("nine"));
        assert_eq!(cardinal(&"1".repeat(37)).split(' ').count(), 37);
    }

    #[test]
    fn ordinals_and_years() {
        for (figures, words) in
            [("1", "first"), ("12", "twelfth"), ("20", "twentieth"), ("23", "twenty third"), ("100", "one hundredth")]
        {
            assert_eq!(ordinal(figures), words);
        }
        for (figures, words) in [
            ("1969", "nineteen sixty nine"),
            ("1900", "nineteen hundred"),
            ("1905", "nineteen oh five"),
            ("2000", "two thousand"),
            ("2005", "two thousand five"),
            ("2024", "twenty twenty four"),
            ("1066", "ten sixty six"),
        ] {
            assert_eq!(year(figures), words);
        }
    }

    #[test]
    fn plain_numbers() {
        for (figures, words) in [
            ("1,250", "one thousand two hundred fifty"),
            ("3.14", "three point one four"),
            (".5", "point five"),
            ("2024", "twenty twenty four"),
            ("4096", "four thousand ninety six"),
            ("2,024", "two thousand twenty four"),
            ("1999.5", "one thousand nine hundred ninety nine point five"),
        ] {
            assert_eq!(plain(figures), words);
        }
        assert_eq!(plural("nineteen ninety"), "nineteen nineties");
    }
}
