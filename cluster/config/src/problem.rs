//! What is wrong with a file, all of it.

use std::fmt;

/// Everything that is wrong with a file, in the file's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file's name, as the caller gave it.
    pub file: String,
    /// The problems; at least one.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key, from the root; empty when the file is no TOML.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right, where there is a finite answer.
    pub allowed: Option<String>,
    /// What was probably meant.
    pub meant: Option<String>,
}

// --- impl Report ---

impl std::error::Error for Report {}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{}:{problem}", self.file)?;
        }
        match self.problems.len() {
            1 => write!(f, "1 problem in {}", self.file),
            count => write!(f, "{count} problems in {}", self.file),
        }
    }
}

// --- impl Problem ---

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)?;
        if let Some(meant) = &self.meant {
            write!(f, "; did you mean `{meant}`?")?;
        }
        if let Some(allowed) = &self.allowed {
            write!(f, "\n    allowed: {allowed}")?;
        }
        Ok(())
    }
}

/// Returns line and column of a byte offset.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        assert_eq!(position("a\nüü = 1", 0), (1, 1));
        assert_eq!(position("a\nüü = 1", 2), (2, 1));
        assert_eq!(position("a\nüü = 1", 7), (2, 4));
        assert_eq!(position("a\n", 99), (2, 1));
    }
}
