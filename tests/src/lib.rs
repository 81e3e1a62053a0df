//! The product judged from outside: how the tree is built ([`tree`]), and in `tests/` what it does over HTTP, for which
//! [`House`] boots a whole cluster with scripted models ([`scribe`] and `fake`) in the test's process. Traces are judged
//! at a real [`collector`].
//!
//! ```
//! let tests = mstar_tests::tree::crates().remove("mstar-tests").expect("this crate is in the workspace");
//! assert_eq!(tests.folder, "tests");
//! ```

pub mod collector;
pub mod house;
pub mod scribe;
pub mod traced;
pub mod tree;

pub use house::House;
