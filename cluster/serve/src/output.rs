//! What commands say. Whoever closed standard output has seen enough: the command ends, and ends well. Standard error
//! may be closed as well; what is said there is lost then.

use std::fmt::Display;
use std::io::{Error, ErrorKind, Result as IoResult, Write as _};

use anyhow::Result;

/// Nobody reads standard output any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

// --- impl Closed ---

impl Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for Closed {}

/// Writes a line to standard output.
pub(crate) fn say(line: impl Display) -> Result<()> {
    written(writeln!(std::io::stdout(), "{line}"))
}

/// Writes a piece of a line to standard output, at once.
pub(crate) fn show(piece: &[u8]) -> Result<()> {
    let mut out = std::io::stdout();
    written(out.write_all(piece).and_then(|()| out.flush()))
}

/// Writes a line to standard error.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn written(outcome: IoResult<()>) -> Result<()> {
    outcome.map_err(|error: Error| match error.kind() {
        ErrorKind::BrokenPipe => Closed.into(),
        _ => anyhow::Error::new(error).context("cannot write to standard output"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_left_is_no_failure() {
        assert!(written(Err(ErrorKind::BrokenPipe.into())).unwrap_err().is::<Closed>());
        assert!(!written(Err(ErrorKind::StorageFull.into())).unwrap_err().is::<Closed>());
        assert!(written(Ok(())).is_ok());
    }
}
