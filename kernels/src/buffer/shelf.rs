//! Memory of results that were dropped, kept for the next ones: fresh memory costs a fault per page, and zeroing.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Buffers and bytes kept at most, and the largest buffer that is.
const COUNT: usize = 64;
const KEPT: usize = 96 << 20;
const LARGEST: usize = 32 << 20;

/// What all threads share.
static SHELF: Mutex<Shelf> = Mutex::new(Shelf::EMPTY);

/// Free buffers, the one dropped longest ago first, and the bytes they take together.
struct Shelf {
    free: Vec<Free>,
    bytes: usize,
}

/// A buffer that nobody uses; its bytes are initialised.
pub(super) struct Free {
    pub(super) ptr: NonNull<u8>,
    pub(super) size: usize,
}

// SAFETY: nobody else has the pointer.
unsafe impl Send for Free {}

/// The size to allocate for so many bytes: one of four per octave, so that buffers fit again.
pub(super) fn size_for(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(64);
    len.next_multiple_of(step)
}

/// Returns a free buffer of this size.
pub(super) fn take(size: usize) -> Option<NonNull<u8>> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner).take(size)
}

/// Keeps a buffer; returns what the caller must give back for it: others, or the buffer itself when it is too large.
pub(super) fn keep(buffer: Free) -> Vec<Free> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner).keep(buffer)
}

// --- impl Shelf ---

impl Shelf {
    const EMPTY: Self = Self { free: Vec::new(), bytes: 0 };

    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        let place = self.free.iter().rposition(|free| free.size == size)?;
        self.bytes -= size;
        Some(self.free.remove(place).ptr)
    }

    /// What nobody has asked for again for longest makes room.
    fn keep(&mut self, buffer: Free) -> Vec<Free> {
        if buffer.size > LARGEST {
            return vec![buffer];
        }
        let mut out = Vec::new();
        while self.free.len() >= COUNT || self.bytes + buffer.size > KEPT {
            let oldest = self.free.remove(0);
            self.bytes -= oldest.size;
            out.push(oldest);
        }
        self.bytes += buffer.size;
        self.free.push(buffer);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_waste_a_quarter_at_most() {
        for len in [1, 64, 65, 1000, 4097, 2_304_000, 9_216_001] {
            let size = size_for(len);
            assert!(size >= len && size.is_multiple_of(64) && (size <= len + len / 4 + 64), "{len} {size}");
            assert_eq!(size_for(size), size);
        }
    }

    #[test]
    fn sizes_that_nobody_asks_for_make_room_for_those_that_are() {
        let buffer = |size| Free { ptr: NonNull::dangling(), size };
        let mut shelf = Shelf::EMPTY;
        let mut given_back = 0;
        for size in 1..=1000 {
            given_back += shelf.keep(buffer(size << 10)).len();
            assert!(shelf.free.len() <= COUNT && shelf.bytes <= KEPT);
        }
        assert_eq!(given_back, 1000 - COUNT);
        assert!(shelf.take(1 << 10).is_none() && shelf.take(1000 << 10).is_some());
        assert_eq!(shelf.keep(buffer(LARGEST + 1)).len(), 1);
        let held = shelf.free.len();
        assert!((0..3).map(|_| shelf.keep(buffer(LARGEST)).len()).sum::<usize>() >= held);
        assert_eq!((shelf.free.len(), shelf.bytes), (3, 3 * LARGEST));
        assert_eq!(shelf.bytes, shelf.free.iter().map(|free| free.size).sum::<usize>());
    }
}
