//! The models of this build, one line each.
//!
//! A [`Zoo`] resolves the components that walks name, whichever crate they come from, and checks at construction that
//! every graph matches what its components declare. Its [`Zoo::catalogue`] is what a deployment file may name.
//!
//! The crate refuses to know how a model computes, where it runs, and which deployment serves it.
//!
//! ```
//! let zoo = mstar_zoo::Zoo::with_fake()?;
//! let fake = zoo.model("fake").expect("declared by with_fake");
//! assert!(fake.graph().find_walk("chat").is_some());
//! assert!(zoo.component("fake.llm").is_some());
//! # Ok::<(), mstar_zoo::ZooError>(())
//! ```

mod bonds;
mod catalogue;
mod standard;
mod zoo;

pub use zoo::{Entry, Zoo, ZooError};
