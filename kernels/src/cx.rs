//! The compute context: where an operation runs, with which instructions, on which threads.

use std::sync::Arc;

use crate::KernelError;
use crate::gpu::Gpu;
use crate::isa::{Isa, Kernel, Portable};
use crate::pool::{Affinity, Pool};

/// Where a tensor's bytes lie and an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Host memory and cores.
    Cpu,
    /// The CUDA device with this ordinal.
    Cuda(u16),
}

/// The instructions that CPU kernels use. Results are the same, bit for bit, within a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// What every machine has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL; dot products of narrow numbers as in [`Tier::Avx2`].
    Avx512,
    /// AVX-512 with the dot products of BF16 and VNNI.
    Avx512Dot,
}

/// Says where and how operations run; every operation takes one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cx {
    tier: Tier,
    pool: Arc<Pool>,
    gpu: Option<Arc<Gpu>>,
}

/// The CPU side of a context: hands kernels to the pool under the context's tier.
#[derive(Clone, Copy)]
pub(crate) struct Cpu<'a> {
    tier: Tier,
    pub(crate) pool: &'a Pool,
}

/// Computes one row of an output at a time; a row depends on nothing but its inputs.
pub(crate) trait RowKernel: Sync {
    /// About how many simple vector operations an element costs.
    const COST: usize;
    /// Writes row `row`. Implementations are `#[inline(always)]`, so that they compile for the tier.
    fn row<I: Isa>(&self, isa: I, row: usize, out: &mut [f32]);
}

// --- impl Tier ---

impl Tier {
    /// Every tier, from the narrowest to the widest.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Dot];

    /// Returns the widest tier of this machine.
    pub fn detect() -> Self {
        Self::ALL.into_iter().rfind(|tier| tier.present()).unwrap_or(Self::Portable)
    }

    /// Says whether this machine has the instructions of the tier.
    pub fn present(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && Self::Avx2.present()
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Dot => {
                is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512vnni")
                    && Self::Avx512.present()
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

// --- impl Cx ---

impl Cx {
    /// Runs on the CPU with the widest tier of this machine.
    pub fn cpu(pool: Arc<Pool>) -> Self {
        Self { tier: Tier::detect(), pool, gpu: None }
    }

    /// Runs on the CPU with a pool of its own.
    pub fn with_threads(threads: usize) -> Result<Self, KernelError> {
        Ok(Self::cpu(Arc::new(Pool::new(threads, Affinity::Free)?)))
    }

    /// Returns the same context on a CUDA device; the pool stays for what runs on the host.
    pub fn with_gpu(mut self, gpu: Arc<Gpu>) -> Self {
        self.gpu = Some(gpu);
        self
    }

    /// Returns the CUDA device operations run on, if it is one.
    pub fn gpu(&self) -> Option<&Arc<Gpu>> {
        self.gpu.as_ref()
    }

    /// Returns the same context with another tier, if this machine has it.
    pub fn with_tier(mut self, tier: Tier) -> Result<Self, KernelError> {
        if !tier.present() {
            return Err(KernelError::NoTier { tier });
        }
        self.tier = tier;
        Ok(self)
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.gpu.as_ref().map_or(Device::Cpu, |gpu| gpu.device())
    }

    /// Returns the instruction tier.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the thread pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the CPU side, or says that `op` has no kernel on this device.
    pub(crate) fn cpu_for(&self, op: &'static str) -> Result<Cpu<'_>, KernelError> {
        match self.device() {
            Device::Cpu => Ok(Cpu { tier: self.tier, pool: &self.pool }),
            device => Err(KernelError::NoKernel { op, device }),
        }
    }
}

// --- impl Cpu ---

/// Elements times cost that one task of the pool should have: some 5 us.
const TASK: usize = 16 << 10;

impl Cpu<'_> {
    /// Runs a kernel compiled for the context's tier, on this thread.
    pub(crate) fn launch<K: Kernel>(self, kernel: K) -> K::Out {
        match self.tier {
            // SAFETY: a context holds a tier only after `Tier::present` (detect, with_tier).
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Dot if K::DOTS => unsafe { crate::isa::avx512::launch_dot(kernel) },
            // SAFETY: as above; a wider tier has the instructions of the narrower ones.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 if K::DOTS => unsafe { crate::isa::avx2::launch(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Dot | Tier::Avx512 => unsafe { crate::isa::avx512::launch(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => unsafe { crate::isa::avx2::launch(kernel) },
            _ => kernel.run(Portable::new()),
        }
    }

    /// Fills `out`, rows of `width`, on the pool.
    pub(crate) fn rows<R: RowKernel>(self, out: &mut [f32], width: usize, kernel: &R) {
        if out.is_empty() {
            return;
        }
        let grain = (TASK / (width * R::COST)).max(1);
        self.pool.chunks(out, grain * width, |chunk, out| {
            let first = chunk * grain;
            self.some_rows(kernel, first, width, out);
        });
    }

    /// Fills `out` with rows of `width` from the `first` on, on this thread.
    pub(crate) fn some_rows<R: RowKernel>(self, kernel: &R, first: usize, width: usize, out: &mut [f32]) {
        if width > 0 {
            self.launch(SomeRows { kernel, first, width, out });
        }
    }
}

struct SomeRows<'a, R> {
    kernel: &'a R,
    first: usize,
    width: usize,
    out: &'a mut [f32],
}

impl<R: RowKernel> Kernel for SomeRows<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (i, out) in self.out.chunks_exact_mut(self.width).enumerate() {
            self.kernel.row(isa, self.first + i, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_the_portable_tier() {
        assert!(Tier::Portable.present());
        assert!(Tier::detect().present());
    }
}
