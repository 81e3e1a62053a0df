//! Sizes with units.

/// What a size may look like.
pub(crate) const SIZE_FORMS: &str = "bytes as a whole number, or a number with B, kB, MB, GB, KiB, MiB or GiB";

const UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Reads a size such as `512MB`, `1.5 GiB` or `4096`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let factor = match unit {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    (bytes < 9.0e18).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_decimal_and_binary_units() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("512MB"), Some(512_000_000));
        assert_eq!(size("512 mib"), Some(512 << 20));
        assert_eq!(size("1.5GiB"), Some(3 << 29));
        for wrong in ["", "MB", "12 parsecs", "-1MB", "1.2.3MB", "99999999999999999999GB", "20000000000GiB"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
