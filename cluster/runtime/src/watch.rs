//! What a boot tells while it goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mstar_weights::Event;

/// Something that happened during a boot.
#[derive(Clone, Debug)]
pub enum BootEvent {
    /// A package is on its way into the cache.
    Pulling {
        /// The package.
        package: &'static str,
        /// What happens to it.
        event: Event,
    },
    /// Weights are there.
    Weights {
        /// The package.
        package: &'static str,
        /// Where they lie.
        path: PathBuf,
        /// Bytes of all files.
        bytes: u64,
        /// How long it took to have them.
        took: Duration,
    },
    /// A node's engine is made.
    Loaded {
        /// The node.
        node: String,
        /// Its rank.
        rank: String,
        /// How long it took.
        took: Duration,
    },
    /// All node actors are up.
    Up {
        /// How many.
        nodes: usize,
    },
}

/// Hears what happens during a boot, from whichever thread it happens on.
#[derive(Clone)]
pub struct Watcher(Arc<dyn Fn(BootEvent) + Send + Sync>);

// --- impl Watcher ---

impl Watcher {
    /// Calls this for every event.
    pub fn new(hear: impl Fn(BootEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn tell(&self, event: BootEvent) {
        (self.0)(event);
    }
}

impl Default for Watcher {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}
