//! The models this build serves, one line each.
