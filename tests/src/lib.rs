//! The product judged from outside.
