//! Stories that must hold, and the benchmarks.
