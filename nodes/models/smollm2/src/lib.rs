//! The model smollm2.
