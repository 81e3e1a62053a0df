//! The model voice.
