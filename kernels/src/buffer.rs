//! Bytes of a tensor: aligned for the widest vectors, zeroed, freed on drop.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::KernelError;

mod shelf;

const ALIGN: usize = 64;
/// From this size on the memory is aligned to, and asked to consist of, huge pages: weights stream 10 to 15 % faster from
/// them. It comes from the system as it is, zeroed when it is first touched: a cache of KV pages costs what is used of it.
const HUGE: usize = 2 << 20;

/// An owned, aligned run of bytes.
#[derive(Debug)]
pub(crate) struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
    /// What was allocated.
    size: usize,
    /// Whether others may use the memory afterwards.
    shared: bool,
}

// SAFETY: the buffer owns its bytes; shared references only read them.
unsafe impl Send for Buffer {}
// SAFETY: as above; writing needs `&mut`.
unsafe impl Sync for Buffer {}

// --- impl Buffer ---

impl Buffer {
    /// Returns bytes that hold whatever an earlier buffer left in them.
    pub(crate) fn stale(len: usize) -> Result<Self, KernelError> {
        if len == 0 || len > isize::MAX as usize / 2 {
            return Self::zeroed(len);
        }
        let size = shelf::size_for(len);
        let buffer = match shelf::take(size) {
            Some(ptr) => Self { ptr, len, size, shared: true },
            None => {
                let mut fresh = Self::zeroed(size)?;
                (fresh.len, fresh.shared) = (len, true);
                fresh
            }
        };
        Ok(buffer)
    }

    pub(crate) fn zeroed(len: usize) -> Result<Self, KernelError> {
        let dangling = Self { ptr: NonNull::<Aligned>::dangling().cast(), len: 0, size: 0, shared: false };
        if len == 0 {
            return Ok(dangling);
        }
        let layout = layout(len).ok_or(KernelError::Memory { bytes: len })?;
        let ptr = if len < HUGE {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        } else {
            huge::zeroed(layout)
        };
        match NonNull::new(ptr) {
            Some(ptr) => Ok(Self { ptr, len, size: len, shared: false }),
            None => Err(KernelError::Memory { bytes: len }),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `ptr` points to `len` initialised bytes that we own.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = shelf::Free { ptr: self.ptr, size: self.size };
        if self.shared {
            shelf::keep(buffer).into_iter().for_each(give_back);
        } else {
            give_back(buffer);
        }
    }
}

/// Gives memory of `zeroed` back to where it came from.
fn give_back(shelf::Free { ptr, size }: shelf::Free) {
    match layout(size) {
        Some(layout) if size >= HUGE => huge::free(ptr, layout),
        // SAFETY: allocated by `zeroed` with this same layout.
        Some(layout) if size > 0 => unsafe { dealloc(ptr.as_ptr(), layout) },
        _ => {}
    }
}

/// Gives the empty buffer a pointer that is aligned like every other.
#[repr(align(64))]
struct Aligned(#[expect(dead_code, reason = "only its alignment is used")] [u8; ALIGN]);

fn layout(len: usize) -> Option<Layout> {
    let align = if len < HUGE { ALIGN } else { HUGE };
    Layout::from_size_align(len, align).ok()
}

#[cfg(target_os = "linux")]
mod huge {
    //! Straight from the system: an allocator would touch all of it to zero it.

    use super::{HUGE, Layout, NonNull};

    /// Returns zeroed memory of the layout, or null.
    pub(super) fn zeroed(layout: Layout) -> *mut u8 {
        let size = layout.size().next_multiple_of(HUGE);
        let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the system's choice, a huge page larger than needed.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size + HUGE, read_write, private, -1, 0) };
        if start == libc::MAP_FAILED {
            return std::ptr::null_mut();
        }
        let start = start.cast::<u8>();
        let head = start.align_offset(HUGE);
        // SAFETY: `head` is less than a huge page, so `size` bytes follow it; what lies before and after is given back.
        unsafe {
            let ptr = start.add(head);
            if head > 0 {
                libc::munmap(start.cast(), head);
            }
            if head < HUGE {
                libc::munmap(ptr.add(size).cast(), HUGE - head);
            }
            libc::madvise(ptr.cast(), size, libc::MADV_HUGEPAGE);
            ptr
        }
    }

    pub(super) fn free(ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: mapped by `zeroed`, which gave the rest back.
        unsafe { libc::munmap(ptr.as_ptr().cast(), layout.size().next_multiple_of(HUGE)) };
    }
}

#[cfg(not(target_os = "linux"))]
mod huge {
    //! From the allocator, where nothing is known of the system's pages.

    use super::{Layout, NonNull, alloc_zeroed, dealloc};

    /// Returns zeroed memory of the layout, or null.
    pub(super) fn zeroed(layout: Layout) -> *mut u8 {
        // SAFETY: the layout's size is not zero.
        unsafe { alloc_zeroed(layout) }
    }

    pub(super) fn free(ptr: NonNull<u8>, layout: Layout) {
        // SAFETY: allocated by `zeroed` with this same layout.
        unsafe { dealloc(ptr.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_aligned_whatever_their_size() {
        for len in [0, 1, 63, 4096, HUGE, HUGE + 5] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.bytes().len(), len);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN, 0);
            assert!(buffer.bytes().iter().all(|&b| b == 0));
            buffer.bytes_mut().fill(7);
        }
        assert!(Buffer::zeroed(isize::MAX as usize).is_err());
        assert!(Buffer::stale(isize::MAX as usize).is_err());
    }

    #[test]
    fn what_is_given_back_serves_again_but_never_where_zeros_are_asked_for() {
        let len = 3_333_333;
        let mut first = Buffer::stale(len).unwrap();
        first.bytes_mut().fill(7);
        let place = first.bytes().as_ptr();
        drop(first);
        assert!(Buffer::zeroed(len).unwrap().bytes().iter().all(|&b| b == 0));
        let second = Buffer::stale(len - 5).unwrap();
        assert_eq!((second.bytes().len(), second.bytes().as_ptr()), (len - 5, place));
        assert_ne!(Buffer::stale(len).unwrap().bytes().as_ptr(), place);
    }
}
