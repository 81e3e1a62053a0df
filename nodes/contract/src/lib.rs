//! What a model author implements and an engine promises.
