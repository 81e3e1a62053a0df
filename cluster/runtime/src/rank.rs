//! Ranks: a compute thread each, on a pool of threads that ranks on the same cores share.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use mstar_actors::{DeviceError, DeviceHandle, DeviceSpec, Routes, ThreadDevice};
use mstar_config::{Device, Rank};
use mstar_contract::Gauge;
use mstar_kernels::gpu::{self, Gpu, GpuDescription, GpuSettings};
use mstar_kernels::{Affinity, Cx, KernelError, Pool};

/// A rank that runs.
#[derive(Clone, Debug)]
pub(crate) struct LiveRank {
    pub(crate) name: String,
    pub(crate) device: DeviceHandle,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) cx: Cx,
    pub(crate) affinity: Affinity,
}

/// A rank cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// There is no such GPU.
    #[error("rank {rank} wants {device}: {reason}")]
    NoDevice {
        /// The rank.
        rank: String,
        /// The device.
        device: String,
        /// What there is instead.
        reason: String,
    },
    /// Its compute threads could not be started.
    #[error("rank {rank}")]
    Pool {
        /// The rank.
        rank: String,
        /// Why.
        source: KernelError,
    },
    /// Its own thread could not be started.
    #[error(transparent)]
    Thread(#[from] DeviceError),
}

/// Which ranks share a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PoolKey {
    /// All that say nothing: the whole machine.
    Machine,
    /// All on these cores.
    Cores(Vec<usize>),
    /// One that names a number of threads but no cores.
    Own(String),
}

/// Starts the ranks of these names that `used` says are needed.
pub(crate) fn start(
    ranks: &[Rank],
    used: impl Fn(&str) -> bool,
    routes: &Arc<Routes>,
) -> Result<Vec<LiveRank>, RankError> {
    let mut pools: BTreeMap<PoolKey, Arc<Pool>> = BTreeMap::new();
    let mut live = Vec::new();
    for rank in ranks.iter().filter(|rank| used(&rank.name)) {
        let gpu = match rank.device {
            Device::Cpu => None,
            Device::Cuda(index) => Some(open(rank, index)?),
        };
        let affinity = affinity(rank);
        let key = pool_key(rank);
        let pool = match pools.get(&key) {
            Some(pool) => Arc::clone(pool),
            None => {
                let pool = Pool::new(threads(rank), affinity.clone());
                let pool = pool.map_err(|source| RankError::Pool { rank: rank.name.clone(), source })?;
                let pool = Arc::new(pool);
                pools.insert(key, Arc::clone(&pool));
                pool
            }
        };
        let (cx, gauge) = (Cx::cpu(pool), Gauge::new(&rank.name));
        let cx = match gpu {
            Some(gpu) => cx.with_gpu(gpu),
            None => cx,
        };
        let spec = DeviceSpec {
            name: rank.name.as_str().into(),
            cx: cx.clone(),
            gauge: Arc::clone(&gauge),
            routes: Arc::clone(routes),
        };
        let device = DeviceHandle::Thread(ThreadDevice::start(spec)?);
        live.push(LiveRank { name: rank.name.clone(), device, gauge, cx, affinity });
    }
    Ok(live)
}

/// Says in one line which GPUs there are, or why there are none.
pub(crate) fn tell_of_gpus() {
    match gpu::probe() {
        Err(none) => tracing::info!("{none}; ranks compute on the CPU"),
        Ok(found) => {
            let each = |gpu: &GpuDescription| format!("cuda:{} {}", gpu.ordinal, gpu.name);
            let named: Vec<String> = found.iter().map(each).collect();
            tracing::info!("CUDA devices: {}", if named.is_empty() { "none".to_owned() } else { named.join(", ") });
        }
    }
}

/// Opens a rank's GPU, or says in one line why it cannot.
fn open(rank: &Rank, index: usize) -> Result<Arc<Gpu>, RankError> {
    let no_device = |reason: String| RankError::NoDevice {
        rank: rank.name.clone(),
        device: rank.device.to_string(),
        reason: reason.lines().next().unwrap_or_default().to_owned(),
    };
    let ordinal = u16::try_from(index).map_err(|error| no_device(error.to_string()))?;
    Gpu::open(&GpuSettings { ordinal, nvrtc: None }).map_err(|error| no_device(error.to_string()))
}

fn affinity(rank: &Rank) -> Affinity {
    if rank.cores.is_empty() { Affinity::Free } else { Affinity::Cores(rank.cores.clone()) }
}

fn threads(rank: &Rank) -> usize {
    let machine = || std::thread::available_parallelism().map_or(1, NonZero::get);
    rank.threads.unwrap_or_else(|| if rank.cores.is_empty() { machine() } else { rank.cores.len() })
}

fn pool_key(rank: &Rank) -> PoolKey {
    let mut cores = rank.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    match (cores.is_empty(), rank.threads) {
        (false, _) => PoolKey::Cores(cores),
        (true, None) => PoolKey::Machine,
        (true, Some(_)) => PoolKey::Own(rank.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(name: &str, cores: &[usize], threads: Option<usize>) -> Rank {
        Rank { name: name.to_owned(), cores: cores.to_vec(), threads, device: Device::Cpu }
    }

    #[test]
    fn ranks_on_the_same_cores_share_their_threads() {
        let routes = Routes::new(["n"]);
        let ranks = [
            rank("a", &[], None),
            rank("b", &[], None),
            rank("c", &[0, 1], Some(2)),
            rank("d", &[1, 0], Some(2)),
            rank("e", &[], Some(1)),
            rank("unused", &[], Some(1)),
        ];
        let live = start(&ranks, |name| name != "unused", &routes).unwrap();
        let same = |x: usize, y: usize| Arc::ptr_eq(live[x].cx.pool(), live[y].cx.pool());
        assert_eq!(live.len(), 5);
        assert!(same(0, 1) && same(2, 3));
        assert!(!same(0, 2) && !same(0, 4));
        assert_eq!((live[2].cx.pool().threads(), live[4].cx.pool().threads()), (2, 1));
        live.iter().for_each(|rank| rank.device.stop());
    }

    #[test]
    fn a_gpu_that_is_not_there_is_refused_in_one_line() {
        let gpu = Rank { device: Device::Cuda(99), ..rank("gpu", &[], None) };
        let error = start(&[gpu], |_| true, &Routes::new(["n"])).unwrap_err().to_string();
        assert!(error.starts_with("rank gpu wants cuda:99: ") && error.lines().count() == 1, "{error}");
    }
}
