//! Waiting for a word to change: first spinning, then parked in the kernel.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

/// How long a thread spins before it parks.
const SPIN: Duration = Duration::from_micros(50);

/// A word that threads wait on. Alone on its cache lines, since others spin on it.
#[repr(align(128))]
pub(super) struct Turn {
    pub(super) word: AtomicU32,
    parked: AtomicU32,
}

impl Turn {
    pub(super) fn new(word: u32) -> Self {
        Self { word: AtomicU32::new(word), parked: AtomicU32::new(0) }
    }

    /// Wakes whoever is parked; call it after the word was changed with `SeqCst`.
    pub(super) fn notify(&self) {
        // Pairs with the fence in `wait_while`: either we see the sleeper or it sees the new word.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) > 0 {
            wake_all(&self.word);
        }
    }
}

/// Waits while `busy` holds of the word; returns the word that ended it.
pub(super) fn wait_while(turn: &Turn, busy: impl Fn(u32) -> bool) -> u32 {
    if let Some(word) = spin(turn, &busy) {
        return word;
    }
    turn.parked.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let word = loop {
        let word = turn.word.load(Ordering::SeqCst);
        if !busy(word) {
            break word;
        }
        wait(&turn.word, word);
    };
    turn.parked.fetch_sub(1, Ordering::SeqCst);
    word
}

#[expect(clippy::disallowed_methods, reason = "bounds a spin; no time leaves this function")]
fn spin(turn: &Turn, busy: &impl Fn(u32) -> bool) -> Option<u32> {
    let mut started = None;
    loop {
        for _ in 0..64 {
            let word = turn.word.load(Ordering::SeqCst);
            if !busy(word) {
                return Some(word);
            }
            std::hint::spin_loop();
        }
        if started.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return None;
        }
    }
}

#[cfg(target_os = "linux")]
fn wait(word: &AtomicU32, expected: u32) {
    let flags = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; a null timeout waits until woken. Spurious returns are looped over.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, expected, std::ptr::null::<libc::timespec>()) };
}

#[cfg(target_os = "linux")]
fn wake_all(word: &AtomicU32) {
    let flags = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, i32::MAX) };
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::sync::{Condvar, Mutex, PoisonError};

    pub(super) static LOCK: Mutex<()> = Mutex::new(());
    pub(super) static BELL: Condvar = Condvar::new();

    pub(super) fn locked() -> std::sync::MutexGuard<'static, ()> {
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(target_os = "linux"))]
fn wait(word: &AtomicU32, expected: u32) {
    let held = elsewhere::locked();
    if word.load(Ordering::SeqCst) == expected {
        drop(elsewhere::BELL.wait(held));
    }
}

#[cfg(not(target_os = "linux"))]
fn wake_all(_word: &AtomicU32) {
    drop(elsewhere::locked());
    elsewhere::BELL.notify_all();
}
