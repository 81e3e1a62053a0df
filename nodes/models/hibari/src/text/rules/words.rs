//! Titles, abbreviations and Roman numerals.

use super::super::numbers::{cardinal, ordinal};
use super::{Around, Rule, group};
use regex::Captures;

/// Read so when a capitalised word follows.
const TITLES: [(&str, &str); 26] = [
    ("Mr", "Mister"),
    ("Mrs", "Missus"),
    ("Ms", "Miz"),
    ("Dr", "Doctor"),
    ("Prof", "Professor"),
    ("St", "Saint"),
    ("Mt", "Mount"),
    ("Ft", "Fort"),
    ("Gen", "General"),
    ("Gov", "Governor"),
    ("Sen", "Senator"),
    ("Rep", "Representative"),
    ("Capt", "Captain"),
    ("Lt", "Lieutenant"),
    ("Col", "Colonel"),
    ("Sgt", "Sergeant"),
    ("Cmdr", "Commander"),
    ("Rev", "Reverend"),
    ("Hon", "Honorable"),
    ("Pres", "President"),
    ("Supt", "Superintendent"),
    ("Cpl", "Corporal"),
    ("Maj", "Major"),
    ("Adm", "Admiral"),
    ("Fr", "Father"),
    ("Msgr", "Monsignor"),
];

/// Read so when their full stop is there.
const ABBREVIATIONS: [(&str, &str); 63] = [
    ("e.g", "for example"),
    ("i.e", "that is"),
    ("etc", "et cetera"),
    ("et al", "et al"),
    ("cf", "compare"),
    ("approx", "approximately"),
    ("ca", "circa"),
    ("vs", "versus"),
    ("incl", "including"),
    ("resp", "respectively"),
    ("est", "established"),
    ("Jr", "Junior"),
    ("Sr", "Senior"),
    ("Dr", "Doctor"),
    ("Mr", "Mister"),
    ("Mrs", "Missus"),
    ("Ms", "Miz"),
    ("Prof", "Professor"),
    ("St", "Street"),
    ("Ave", "Avenue"),
    ("Blvd", "Boulevard"),
    ("Rd", "Road"),
    ("Ln", "Lane"),
    ("Hwy", "Highway"),
    ("Apt", "Apartment"),
    ("Bldg", "Building"),
    ("Mt", "Mount"),
    ("Ltd", "Limited"),
    ("Inc", "Incorporated"),
    ("Corp", "Corporation"),
    ("Co", "Company"),
    ("Bros", "Brothers"),
    ("Dept", "Department"),
    ("Univ", "University"),
    ("Assn", "Association"),
    ("Govt", "Government"),
    ("vol", "volume"),
    ("Vol", "Volume"),
    ("fig", "figure"),
    ("Fig", "Figure"),
    ("ch", "chapter"),
    ("Ch", "Chapter"),
    ("pp", "pages"),
    ("ed", "edition"),
    ("Jan", "January"),
    ("Feb", "February"),
    ("Mar", "March"),
    ("Apr", "April"),
    ("Jun", "June"),
    ("Jul", "July"),
    ("Aug", "August"),
    ("Sept", "September"),
    ("Sep", "September"),
    ("Oct", "October"),
    ("Nov", "November"),
    ("Dec", "December"),
    ("Mon", "Monday"),
    ("Tue", "Tuesday"),
    ("Tues", "Tuesday"),
    ("Thu", "Thursday"),
    ("Thurs", "Thursday"),
    ("Fri", "Friday"),
    ("Gen", "General"),
];
/// The same, where their stop would more often end a sentence: only before a figure.
const NUMBERED: [(&str, &str); 8] = [
    ("No", "number"),
    ("no", "number"),
    ("Nos", "numbers"),
    ("nos", "numbers"),
    ("p", "page"),
    ("Sec", "Section"),
    ("sec", "section"),
    ("Eq", "Equation"),
];
const ROMAN: &str = r"(M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3}))\b";
const NUMBERED_THINGS: &str = "Chapter|chapter|Part|part|Act|Scene|Section|section|Volume|volume|Book|book|Phase|phase\
    |Article|article|World War|Mark|Type|type|Level|level|Stage|stage|Class|class|Grade|grade|Super Bowl|Apollo|Gemini\
    |Episode|episode|Round|round|Figure|Table|Appendix";
const RULERS: &str = "Pope|King|Queen|Henry|Louis|Edward|George|William|Charles|James|Richard|Elizabeth|Napoleon|Pius\
    |Benedict|Leo|John Paul|Frederick|Philip|Alexander|Nicholas|Peter|Catherine|Ferdinand";

pub(super) fn rules() -> Vec<Rule> {
    let alternatives = |table: &[(&str, &str)]| {
        let mut written: Vec<String> = table.iter().map(|(short, _)| regex::escape(short)).collect();
        written.sort_by_key(|short| std::cmp::Reverse(short.len()));
        written.join("|")
    };
    vec![
        Rule::new(&format!(r"\b({})\.?\s", alternatives(&TITLES)), |found, around| {
            let named = around.after.is_some_and(char::is_uppercase);
            named.then(|| look_up(&TITLES, group(found, 1)).map(|word| format!("{word} ")))?
        }),
        Rule::new(&format!(r"\b({})\.\s?", alternatives(&NUMBERED)), |found, around| {
            let numbered = around.after.is_some_and(|c| c.is_ascii_digit());
            numbered.then(|| look_up(&NUMBERED, group(found, 1)).map(|word| format!("{word} ")))?
        }),
        Rule::new(&format!(r"\b({})\.", alternatives(&ABBREVIATIONS)), abbreviation),
        Rule::new(r"\bvs\b|\bw/o\b|\bw/|\baka\b|\bAKA\b", |found, _| {
            let words = match found.get_match().as_str() {
                "vs" => "versus",
                "w/o" => "without",
                "w/" => "with ",
                _ => "also known as",
            };
            Some(words.to_owned())
        }),
        Rule::new(r"#\s?([0-9])", |found, around| {
            let sharp = around.before.is_some_and(char::is_alphanumeric);
            (!sharp).then(|| format!("number {}", group(found, 1)))
        }),
        Rule::new(r"\b([CF])#", |found, _| Some(format!("{} sharp", group(found, 1)))),
        Rule::new(&format!(r"\b({NUMBERED_THINGS}) {ROMAN}"), |found, _| {
            let value = roman(group(found, 2))?;
            Some(format!("{} {}", group(found, 1), cardinal(&value.to_string())))
        }),
        Rule::new(&format!(r"\b({RULERS}) {ROMAN}"), |found, _| {
            let value = roman(group(found, 2)).filter(|_| group(found, 2) != "I" || group(found, 1) == "Elizabeth")?;
            Some(format!("{} the {}", group(found, 1), ordinal(&value.to_string())))
        }),
    ]
}

fn look_up(table: &[(&str, &'static str)], short: &str) -> Option<&'static str> {
    table.iter().find(|(written, _)| *written == short).map(|(_, word)| *word)
}

fn abbreviation(found: &Captures<'_>, around: Around) -> Option<String> {
    let word = look_up(&ABBREVIATIONS, group(found, 1))?;
    let part = around.after.is_some_and(char::is_alphanumeric) || around.before == Some('.');
    let stop = if around.after.is_none() { "." } else { "" };
    (!part).then(|| format!("{word}{stop}"))
}

/// Returns the value of a Roman numeral.
fn roman(numeral: &str) -> Option<u32> {
    let value = |c| match c {
        'I' => 1,
        'V' => 5,
        'X' => 10,
        'L' => 50,
        'C' => 100,
        'D' => 500,
        _ => 1000,
    };
    let (mut sum, mut highest) = (0, 0);
    for c in numeral.chars().rev() {
        let v = value(c);
        sum = if v < highest { sum - v } else { sum + v };
        highest = highest.max(v);
    }
    (sum > 0).then_some(sum)
}
