//! The binary `mstar`.
fn main() {}
