//! The model hibari.
