//! The W3C trace context that rides in every message, as plain data.

use std::fmt;
use std::str::FromStr;

/// Which span a message's work belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; zero when there is none.
    pub trace_id: u128,
    /// The parent span.
    pub span_id: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

/// The text is not a W3C `traceparent` of version 00.
#[derive(Debug, thiserror::Error)]
#[error("not a traceparent header")]
pub struct NotATraceparent;

impl TraceContext {
    /// Returns whether the context names a trace.
    pub fn is_present(&self) -> bool {
        self.trace_id != 0 && self.span_id != 0
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

impl FromStr for TraceContext {
    type Err = NotATraceparent;

    fn from_str(text: &str) -> Result<Self, NotATraceparent> {
        let parts: Vec<&str> = text.trim().split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return Err(NotATraceparent) };
        let lower_hex = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if version != "00" || !lower_hex(trace, 32) || !lower_hex(span, 16) || !lower_hex(flags, 2) {
            return Err(NotATraceparent);
        }
        let context = Self {
            trace_id: u128::from_str_radix(trace, 16).map_err(|_| NotATraceparent)?,
            span_id: u64::from_str_radix(span, 16).map_err(|_| NotATraceparent)?,
            sampled: u8::from_str_radix(flags, 16).map_err(|_| NotATraceparent)? & 1 == 1,
        };
        if context.is_present() { Ok(context) } else { Err(NotATraceparent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_survives_a_round_trip_and_garbage_is_refused() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context: TraceContext = text.parse().unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), text);
        for bad in ["", "00-0-0-0", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", &text.to_uppercase()] {
            assert!(bad.parse::<TraceContext>().is_err(), "{bad}");
        }
        let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        assert!(zero.parse::<TraceContext>().is_err());
    }
}
