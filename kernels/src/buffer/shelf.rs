//! Memory of results that were dropped, kept for the next ones: fresh memory costs a fault per page, and zeroing.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Bytes kept at most, and the largest buffer that is.
const KEPT: usize = 96 << 20;
const LARGEST: usize = 32 << 20;

/// Free buffers, and the bytes they take together.
static SHELF: Mutex<Shelf> = Mutex::new(Shelf { free: Vec::new(), bytes: 0 });

struct Shelf {
    free: Vec<Free>,
    bytes: usize,
}

/// A buffer that nobody uses; its bytes are initialised.
struct Free {
    ptr: NonNull<u8>,
    size: usize,
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
    let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
    let place = shelf.free.iter().rposition(|free| free.size == size)?;
    shelf.bytes -= size;
    Some(shelf.free.swap_remove(place).ptr)
}

/// Keeps a buffer of this size, or says that there is no room for it.
pub(super) fn keep(ptr: NonNull<u8>, size: usize) -> bool {
    if size > LARGEST {
        return false;
    }
    let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
    let room = shelf.bytes + size <= KEPT && shelf.free.len() < 64;
    if room {
        shelf.bytes += size;
        shelf.free.push(Free { ptr, size });
    }
    room
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
}
