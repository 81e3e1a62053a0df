//! The thin tensor layer and its operations.
