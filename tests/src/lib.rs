//! The product judged from outside: how the tree is built ([`tree`]), and in `tests/` what it does.

pub mod tree;
