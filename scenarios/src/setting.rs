//! The deployment that a story is told on.

use std::sync::Arc;
use std::time::Duration;

use mstar_actors::Faults;
use mstar_config::{Deployment, Environment, Supervision};
use mstar_runtime::{Boot, Cluster};
use mstar_zoo::Zoo;

use crate::asks::Asks;
use crate::error::StoryError;

/// What a story is told on.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Serve the scripted model in the place of real weights.
    pub fake: bool,
    /// Names every random choice of the story.
    pub seed: u64,
    /// Where weights lie, among other things.
    pub environment: Environment,
    /// Hears how the story goes on, a line at a time.
    pub tell: fn(&str),
}

/// The deployment that users get.
const VOICE: &str = include_str!("../../deployments/voice.toml");
/// The scripted model in its place.
const FAKE: &str = "[model.fake]\n[[rank]]\nname = 'cpu0'\nthreads = 1\n";

// --- impl Setting ---

impl Setting {
    /// Returns a setting that tells nobody how it goes.
    pub fn new(fake: bool, seed: u64) -> Self {
        Self { fake, seed, environment: Environment::default(), tell: |_| {} }
    }

    /// Boots the deployment, changed by `tune`.
    pub(crate) async fn boot(
        &self,
        tune: impl FnOnce(&mut Deployment),
        faults: Arc<dyn Faults>,
    ) -> Result<Cluster, StoryError> {
        let (zoo, name, text) = if self.fake {
            (Zoo::with_fake()?, "the scripted deployment", FAKE)
        } else {
            (Zoo::standard()?, "deployments/voice.toml", VOICE)
        };
        let deployment = Deployment::parse(name, text, &zoo.catalogue());
        let mut deployment = deployment.map_err(|report| StoryError::Deployment(report.to_string()))?;
        tune(&mut deployment);
        (self.tell)(&format!("boots {name}"));
        let boot = Boot { environment: self.environment.clone(), faults, ..Boot::new(deployment, zoo) };
        let cluster = Cluster::boot(boot).await.map_err(Box::new)?;
        (self.tell)(&format!("{} nodes are up", cluster.table().nodes.len()));
        Ok(cluster)
    }

    /// Ends a deployment, once nobody asks anything of it any more.
    pub(crate) async fn end(&self, cluster: Arc<Cluster>, asks: Arc<Asks>) {
        drop(asks);
        if let Some(cluster) = Arc::into_inner(cluster) {
            cluster.shutdown().await;
        }
    }

    pub(crate) fn tell(&self, line: impl AsRef<str>) {
        (self.tell)(line.as_ref());
    }
}

/// Returns rules by which a node may die as often as a story likes, and comes back soon.
pub(crate) fn patient() -> Supervision {
    Supervision {
        max_restarts: 1_000_000,
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..Supervision::default()
    }
}
