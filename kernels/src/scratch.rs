//! Memory that a thread keeps from one operation to the next: large buffers that are fresh each time cost a page fault for
//! every 4 KiB.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

/// Buffers a thread keeps, and the largest that it does, in bytes.
const KEPT: usize = 4;
const LARGEST: usize = 16 << 20;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
    static ROWS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Elements that hold whatever an earlier operation left in them.
pub(crate) struct Scratch<T> {
    words: Vec<u64>,
    len: usize,
    element: PhantomData<T>,
}

// --- impl Scratch ---

impl<T: Pod> Scratch<T> {
    pub(crate) fn take(len: usize) -> Self {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let needed = (len * size_of::<T>()).div_ceil(size_of::<u64>());
        let mut words = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
        if words.len() < needed {
            words = vec![0; needed];
        }
        Self { words, len, element: PhantomData }
    }

    fn words(&self) -> usize {
        (self.len * size_of::<T>()).div_ceil(size_of::<u64>())
    }
}

impl<T: Pod> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.words[..self.words()])[..self.len]
    }
}

impl<T: Pod> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let (words, len) = (self.words(), self.len);
        &mut bytemuck::cast_slice_mut(&mut self.words[..words])[..len]
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        if words.len() * size_of::<u64>() > LARGEST {
            return;
        }
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < KEPT {
                buffers.push(words);
            }
        });
    }
}

/// Lends the thread's buffer for rows, empty, to `body`.
pub(crate) fn with_rows<R>(body: impl FnOnce(&mut Vec<f32>) -> R) -> R {
    let mut rows = ROWS.take();
    rows.clear();
    let result = body(&mut rows);
    if rows.capacity() * size_of::<f32>() <= LARGEST {
        ROWS.set(rows);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_back_what_it_gave() {
        let mut first = Scratch::<[i8; 32]>::take(3);
        first[2] = [7; 32];
        let place = first.as_ptr() as usize;
        drop(first);
        let second = Scratch::<f32>::take(23);
        assert_eq!((second.len(), second.as_ptr() as usize), (23, place));
        assert_ne!(Scratch::<f32>::take(1).as_ptr() as usize, place);
    }

    #[test]
    fn rows_are_lent_empty_and_keep_their_room() {
        with_rows(|rows| rows.resize(100, 1.0));
        with_rows(|rows| assert!(rows.is_empty() && rows.capacity() >= 100));
    }
}
