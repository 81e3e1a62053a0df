//! What can go wrong with media; every variant but `Encode` is the sender's to mend.

/// Why media could not be decoded or encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// It is in no format, or uses a feature, that we read.
    #[error("unsupported audio: {0}")]
    Unsupported(String),
    /// It breaks its format's rules, or ends early.
    #[error("corrupt audio: {0}")]
    Corrupt(String),
    /// It plays longer than allowed.
    #[error("audio is longer than {max_seconds} s")]
    TooLong {
        /// The limit.
        max_seconds: u32,
    },
    /// The file is larger than allowed.
    #[error("audio file of {bytes} bytes, at most {max_bytes} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// It holds no samples.
    #[error("audio holds no samples")]
    Empty,
    /// The samples cannot be written in the wanted format.
    #[error("cannot encode audio: {0}")]
    Encode(String),
}
