//! The model whisper.
