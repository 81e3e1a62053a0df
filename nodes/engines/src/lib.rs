//! The machinery around a model's compute: batching contract, KV pages, sampling.
