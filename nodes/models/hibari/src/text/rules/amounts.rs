//! Money, percentages, temperatures and measures.

use super::super::numbers::{cardinal, plain};
use super::{Around, NUMBER, Rule, group};
use regex::Captures;

/// A currency's sign or code, its unit and units, and its hundredth and hundredths.
const CURRENCIES: [(&str, [&str; 2], [&str; 2]); 12] = [
    ("$", ["dollar", "dollars"], ["cent", "cents"]),
    ("£", ["pound", "pounds"], ["penny", "pence"]),
    ("€", ["euro", "euros"], ["cent", "cents"]),
    ("¥", ["yen", "yen"], ["sen", "sen"]),
    ("₹", ["rupee", "rupees"], ["paisa", "paise"]),
    ("₩", ["won", "won"], ["jeon", "jeon"]),
    ("USD", ["dollar", "dollars"], ["cent", "cents"]),
    ("GBP", ["pound", "pounds"], ["penny", "pence"]),
    ("EUR", ["euro", "euros"], ["cent", "cents"]),
    ("JPY", ["yen", "yen"], ["sen", "sen"]),
    ("CHF", ["franc", "francs"], ["centime", "centimes"]),
    ("¢", ["cent", "cents"], ["", ""]),
];
const SIGN: &str = "([$£€¥₹₩]|USD|EUR|GBP|JPY|CHF)";
const SCALE: &str = r"(?:\s?(hundred|thousand|million|billion|trillion|[kKmMbB]n?)\b)?";

/// A unit as written, what one is called, and what many are called.
const UNITS: [(&str, &str, &str); 62] = [
    ("km/h", "kilometer per hour", "kilometers per hour"),
    ("kph", "kilometer per hour", "kilometers per hour"),
    ("mph", "mile per hour", "miles per hour"),
    ("m/s", "meter per second", "meters per second"),
    ("km²", "square kilometer", "square kilometers"),
    ("cm²", "square centimeter", "square centimeters"),
    ("m²", "square meter", "square meters"),
    ("m³", "cubic meter", "cubic meters"),
    ("sq ft", "square foot", "square feet"),
    ("km", "kilometer", "kilometers"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("nm", "nanometer", "nanometers"),
    ("µm", "micrometer", "micrometers"),
    ("m", "meter", "meters"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("yd", "yard", "yards"),
    ("kg", "kilogram", "kilograms"),
    ("mg", "milligram", "milligrams"),
    ("µg", "microgram", "micrograms"),
    ("g", "gram", "grams"),
    ("lbs", "pound", "pounds"),
    ("lb", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("L", "liter", "liters"),
    ("hrs", "hour", "hours"),
    ("hr", "hour", "hours"),
    ("h", "hour", "hours"),
    ("mins", "minute", "minutes"),
    ("min", "minute", "minutes"),
    ("secs", "second", "seconds"),
    ("sec", "second", "seconds"),
    ("ms", "millisecond", "milliseconds"),
    ("µs", "microsecond", "microseconds"),
    ("Hz", "hertz", "hertz"),
    ("kHz", "kilohertz", "kilohertz"),
    ("MHz", "megahertz", "megahertz"),
    ("GHz", "gigahertz", "gigahertz"),
    ("KB", "kilobyte", "kilobytes"),
    ("kB", "kilobyte", "kilobytes"),
    ("MB", "megabyte", "megabytes"),
    ("GB", "gigabyte", "gigabytes"),
    ("TB", "terabyte", "terabytes"),
    ("Mbps", "megabit per second", "megabits per second"),
    ("Gbps", "gigabit per second", "gigabits per second"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("kW", "kilowatt", "kilowatts"),
    ("MW", "megawatt", "megawatts"),
    ("GW", "gigawatt", "gigawatts"),
    ("mAh", "milliamp hour", "milliamp hours"),
    ("kcal", "kilocalorie", "kilocalories"),
    ("kJ", "kilojoule", "kilojoules"),
    ("dB", "decibel", "decibels"),
    ("fps", "frame per second", "frames per second"),
    ("rpm", "revolution per minute", "revolutions per minute"),
    ("psi", "P S I", "P S I"),
    ("kPa", "kilopascal", "kilopascals"),
    ("hPa", "hectopascal", "hectopascals"),
    ("pct", "percent", "percent"),
];

pub(super) fn rules() -> Vec<Rule> {
    let mut units: Vec<String> = UNITS.iter().map(|(unit, ..)| regex::escape(unit)).collect();
    units.sort_by_key(|unit| std::cmp::Reverse(unit.len()));
    let units = units.join("|");
    vec![
        Rule::new(&format!(r"(-)?{SIGN}\s?({NUMBER}){SCALE}"), |found, around| {
            let amount = money(group(found, 2), group(found, 3), group(found, 4))?;
            (!around.before.is_some_and(char::is_alphabetic))
                .then(|| if group(found, 1).is_empty() { amount } else { format!("minus {amount}") })
        }),
        Rule::new(&format!(r"({NUMBER})\s?([$£€¥₹₩¢]|(?:USD|EUR|GBP|JPY|CHF)\b)"), |found, around| {
            let amount = money(group(found, 2), group(found, 1), "");
            amount.filter(|_| !around.touches_word())
        }),
        Rule::new(&format!(r"(-?)({NUMBER})\s?%"), |found, around| {
            Some(format!("{}{} percent", sign(group(found, 1), around), quantity(group(found, 2))))
        }),
        Rule::new(&format!(r"(-?)({NUMBER})\s?°\s?([CFK]\b)?"), |found, around| {
            let scale = match group(found, 3) {
                "C" => " Celsius",
                "F" => " Fahrenheit",
                "K" => " Kelvin",
                _ => "",
            };
            let degrees = if group(found, 2) == "1" { "degree" } else { "degrees" };
            Some(format!("{}{} {degrees}{scale}", sign(group(found, 1), around), quantity(group(found, 2))))
        }),
        Rule::new(&format!(r"(-?)\b({NUMBER})[\s-]?({units})(\b|$|[\s,.;:!?)])"), measure),
    ]
}

/// Returns a number's words, never as a year.
fn quantity(number: &str) -> String {
    match number.split_once('.') {
        None => cardinal(&number.replace(',', "")),
        Some(_) => plain(number),
    }
}

fn measure(found: &Captures<'_>, around: Around) -> Option<String> {
    let (_, one, many) = UNITS.iter().find(|(unit, ..)| *unit == group(found, 3))?;
    let touched = around.before.is_some_and(|c| c.is_alphanumeric() || ".,".contains(c));
    let name = if group(found, 2) == "1" { one } else { many };
    let number = format!("{}{}", sign(group(found, 1), around), quantity(group(found, 2)));
    (!touched).then(|| format!("{number} {name}{}", group(found, 4)))
}

/// Returns "minus " for a sign that stands before a number, " to " for the dash of a range.
fn sign(dash: &str, around: Around) -> &'static str {
    match around.before {
        _ if dash.is_empty() => "",
        Some(c) if c.is_alphanumeric() => " to ",
        _ => "minus ",
    }
}

fn money(currency: &str, number: &str, scale: &str) -> Option<String> {
    let (_, [one, many], [hundredth, hundredths]) = CURRENCIES.iter().find(|(sign, ..)| *sign == currency)?;
    let scale = match scale {
        "k" | "K" => "thousand",
        "m" | "M" | "mn" | "Mn" => "million",
        "b" | "B" | "bn" | "Bn" => "billion",
        word => word,
    };
    if !scale.is_empty() {
        return Some(format!("{} {scale} {many}", quantity(number)));
    }
    let (whole, cents) = number.split_once('.').unwrap_or((number, ""));
    let units = format!("{} {}", quantity(whole), if whole == "1" { one } else { many });
    match cents {
        "" | "00" => Some(units),
        _ if cents.len() != 2 || hundredth.is_empty() => Some(format!("{} {many}", quantity(number))),
        _ => {
            let bare = cents.strip_prefix('0').unwrap_or(cents);
            let small = format!("{} {}", cardinal(bare), if bare == "1" { hundredth } else { hundredths });
            Some(if whole.bytes().all(|b| b == b'0') { small } else { format!("{units} and {small}") })
        }
    }
}
