//! Memory of tensors on a device: handed out from a pool and given back to it.
//!
//! All work of a [`Gpu`] happens in the order of one stream, so memory may be handed out again as soon as its tensor is
//! dropped, though the device still reads it: what writes to it next stands behind that in the stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::handle::Gpu;
use crate::KernelError;

/// An owned run of bytes of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

/// Memory that no tensor holds, by size.
#[derive(Debug, Default)]
pub(super) struct FreeMemory {
    by_size: BTreeMap<usize, Vec<u64>>,
}

/// Memory that captured steps use: it is not handed out to others, and outlives the tensors that lie in it.
#[derive(Debug, Default)]
pub(super) struct KeptMemory {
    places: BTreeMap<u64, Kept>,
}

#[derive(Debug)]
struct Kept {
    size: usize,
    /// Tensors that lie there: a step's values may overlap with those of its next run.
    tensors: u32,
    /// The captured step is gone; only tensors keep it.
    left_over: bool,
}

// --- impl Memory ---

impl Memory {
    /// Returns uninitialised bytes.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, KernelError> {
        let address = if bytes == 0 { 0 } else { gpu.take(rounded(bytes))? };
        Ok(Self { gpu: Arc::clone(gpu), address, bytes })
    }

    /// Returns whose it is.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Returns where it lies; 0 when it is empty.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns a run of its own with the same bytes from `start` on.
    pub(crate) fn copied(&self, start: usize, bytes: usize) -> Result<Self, KernelError> {
        let own = Self::new(&self.gpu, bytes)?;
        self.gpu.copy(&own, 0, (self, start), bytes)?;
        Ok(own)
    }

    /// Returns its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.gpu.put_back(self.address, rounded(self.bytes));
        }
    }
}

/// What is really allocated: few sizes, so that memory is found again.
pub(super) fn rounded(bytes: usize) -> usize {
    const STEPS: [(usize, usize); 2] = [(64 << 10, 512), (4 << 20, 64 << 10)];
    let step = STEPS.iter().find(|(most, _)| bytes <= *most).map_or(2 << 20, |(_, step)| *step);
    bytes.next_multiple_of(step)
}

// --- impl FreeMemory ---

impl FreeMemory {
    pub(super) fn take(&mut self, size: usize) -> Option<u64> {
        self.by_size.get_mut(&size)?.pop()
    }

    pub(super) fn put(&mut self, address: u64, size: usize) {
        self.by_size.entry(size).or_default().push(address);
    }

    /// Hands out everything, with sizes, to be released.
    pub(super) fn drain(&mut self) -> Vec<(u64, usize)> {
        let all = std::mem::take(&mut self.by_size);
        all.into_iter().flat_map(|(size, places)| places.into_iter().map(move |place| (place, size))).collect()
    }
}

// --- impl KeptMemory ---

impl KeptMemory {
    /// Counts a tensor in; from the first one on the place is kept.
    pub(super) fn enter(&mut self, address: u64, size: usize) {
        let kept = self.places.entry(address).or_insert(Kept { size, tensors: 0, left_over: false });
        kept.tensors += 1;
    }

    /// Counts a tensor out. Says `false` for a place that is not kept, or no longer: its memory is free.
    pub(super) fn leave(&mut self, address: u64) -> bool {
        let Some(kept) = self.places.get_mut(&address) else { return false };
        kept.tensors -= 1;
        let free = kept.left_over && kept.tensors == 0;
        if free {
            self.places.remove(&address);
        }
        !free
    }

    /// The step that used these places is gone; returns what no tensor keeps.
    pub(super) fn release(&mut self, places: &[u64]) -> Vec<(u64, usize)> {
        let mut free = Vec::new();
        for &address in places {
            match self.places.get_mut(&address) {
                Some(kept) if kept.tensors > 0 => kept.left_over = true,
                Some(kept) => {
                    free.push((address, kept.size));
                    self.places.remove(&address);
                }
                None => {}
            }
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_few_and_never_too_small() {
        for bytes in [1, 511, 512, 513, 65_536, 65_537, 5 << 20] {
            assert!(rounded(bytes) >= bytes && rounded(bytes) == rounded(rounded(bytes)));
        }
        assert_eq!((rounded(1), rounded(65_537), rounded((4 << 20) + 1)), (512, 128 << 10, 6 << 20));
    }

    #[test]
    fn freed_memory_is_found_by_its_size() {
        let mut free = FreeMemory::default();
        free.put(512, 1_024);
        assert_eq!((free.take(512), free.take(1_024), free.take(1_024)), (None, Some(512), None));
        free.put(4_096, 512);
        assert_eq!(free.drain(), [(4_096, 512)]);
    }

    #[test]
    fn kept_memory_is_free_when_neither_a_step_nor_a_tensor_has_it() {
        let mut kept = KeptMemory::default();
        for address in [512, 1_024] {
            kept.enter(address, 512);
        }
        kept.enter(512, 512);
        assert!(kept.leave(512) && kept.leave(1_024) && !kept.leave(4_096));
        assert_eq!(kept.release(&[512, 1_024]), [(1_024, 512)]);
        assert!(!kept.leave(512));
        assert!(!kept.leave(1_024));
    }
}
