//! The persistent fork/join pool. The caller is its first thread; helpers spin for at most 50 us, then park. Work is
//! handed out by a counter, so a helper that wakes late, or is preempted, holds nobody up: a helper that comes after the
//! caller found the work done is not waited for.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::KernelError;

mod park;
use park::{Turn, wait_while};

/// The cores that the helpers of a pool stay on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// The scheduler decides.
    #[default]
    Free,
    /// Thread `i` (the caller is thread 0 and places itself) stays on core `i`, modulo their number.
    Cores(Vec<usize>),
}

/// A fixed set of threads that compute together. Several callers may share one: they take turns.
pub struct Pool {
    shared: Arc<Shared>,
    lease: Mutex<()>,
    helpers: Vec<JoinHandle<()>>,
}

type Job = *const (dyn Fn() + Sync);
type Panic = Box<dyn Any + Send>;

/// Set in [`Shared::gate`] while the job may not be entered.
const CLOSED: u32 = 1 << 31;

struct Shared {
    /// Counts the jobs; helpers wait for it to change.
    jobs: Turn,
    /// Counts the helpers that run, on their core; `Pool::new` waits for them.
    started: Turn,
    /// Helpers inside the current job, and [`CLOSED`].
    gate: Turn,
    /// The current job. Written by the lease holder while the gate is closed and empty, read inside the gate.
    job: UnsafeCell<Option<Job>>,
    stopping: AtomicBool,
    panic: Mutex<Option<Panic>>,
}

// SAFETY: `job` is the only part that is not `Sync`; the gate orders its writes and reads (see its doc).
unsafe impl Sync for Shared {}
// SAFETY: the job pointer is only followed inside the gate, while `Pool::run` keeps its target alive.
unsafe impl Send for Shared {}

thread_local! {
    /// Whether this thread is inside a job: a job that forks runs its work alone.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

// --- impl Affinity ---

impl Affinity {
    /// Keeps the calling thread on the core of thread `index`; says whether that worked.
    pub fn pin(&self, index: usize) -> bool {
        match self {
            Self::Cores(cores) if !cores.is_empty() => pin_to(cores[index % cores.len()]),
            _ => false,
        }
    }
}

// --- impl Pool ---

impl Pool {
    /// Starts a pool of `threads` (at least one): the caller and `threads - 1` helpers.
    pub fn new(threads: usize, affinity: Affinity) -> Result<Self, KernelError> {
        let shared = Arc::new(Shared {
            jobs: Turn::new(0),
            started: Turn::new(0),
            gate: Turn::new(CLOSED),
            job: UnsafeCell::new(None),
            stopping: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool = Self { shared, lease: Mutex::new(()), helpers: Vec::new() };
        for index in 1..threads {
            let (shared, affinity) = (pool.shared.clone(), affinity.clone());
            let named = std::thread::Builder::new().name(format!("mstar-compute-{index}"));
            let helper = named.spawn(move || {
                affinity.pin(index);
                shared.started.word.fetch_add(1, Ordering::SeqCst);
                shared.started.notify();
                shared.help();
            });
            pool.helpers.push(helper.map_err(KernelError::Thread)?);
            wait_while(&pool.shared.started, |started| (started as usize) < index);
        }
        Ok(pool)
    }

    /// Returns the number of threads, the caller among them.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `task` once for each of `0..tasks`, in any order, on all threads; returns when all are done.
    /// A panic in a task is raised again here; the pool stays usable.
    pub fn each(&self, tasks: usize, task: impl Fn(usize) + Sync) {
        if tasks <= 1 || self.helpers.is_empty() || BUSY.get() {
            (0..tasks).for_each(task);
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(&|| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= tasks {
                    return;
                }
                task(index);
            }
        });
    }

    /// Cuts `items` in chunks of `size` (the last may be shorter) and calls `task` for each with its index.
    pub fn chunks<T: Send>(&self, items: &mut [T], size: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let size = size.max(1);
        let tasks = items.len().div_ceil(size);
        let items = Disjoint::new(items);
        self.each(tasks, |index| {
            let start = index * size;
            let len = size.min(items.len() - start);
            // SAFETY: the chunks of different tasks do not overlap, and each task runs once.
            task(index, unsafe { items.part(start, len) });
        });
    }

    /// Lets every thread run `job` once, or not at all if it comes late; the caller always does.
    fn run(&self, job: &(dyn Fn() + Sync)) {
        let turn = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is widened; the gate is closed and empty again before `run` returns.
        let job: &'static (dyn Fn() + Sync) = unsafe { std::mem::transmute(job) };
        // SAFETY: we hold the lease and the gate is closed and empty: nobody reads.
        unsafe { *shared.job.get() = Some(job) };
        shared.gate.word.store(0, Ordering::SeqCst);
        shared.jobs.word.fetch_add(1, Ordering::SeqCst);
        shared.jobs.notify();
        let own = busily(job);
        shared.gate.word.fetch_or(CLOSED, Ordering::SeqCst);
        wait_while(&shared.gate, |gate| gate != CLOSED);
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(turn);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.jobs.word.fetch_add(1, Ordering::SeqCst);
        self.shared.jobs.notify();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of its jobs, so there is nothing to pass on.
            drop(helper.join());
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

// --- impl Shared ---

impl Shared {
    fn help(&self) {
        let mut seen = 0;
        loop {
            seen = wait_while(&self.jobs, |jobs| jobs == seen);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            if !self.enter() {
                continue;
            }
            // SAFETY: inside the gate the job is set, and its target lives until we left.
            let done = unsafe { (*self.job.get()).map_or(Ok(()), |job| busily(&*job)) };
            if let Err(panic) = done {
                let mut kept = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_or_insert(panic);
            }
            self.gate.word.fetch_sub(1, Ordering::SeqCst);
            self.gate.notify();
        }
    }

    fn enter(&self) -> bool {
        let one_more = |gate| (gate & CLOSED == 0).then_some(gate + 1);
        self.gate.word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }
}

/// Runs the job on this thread; forks inside of it run alone.
fn busily(job: &(dyn Fn() + Sync)) -> Result<(), Panic> {
    BUSY.set(true);
    let done = catch_unwind(AssertUnwindSafe(job));
    BUSY.set(false);
    done
}

#[cfg(target_os = "linux")]
fn pin_to(core: usize) -> bool {
    if core >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: a zeroed set is valid, the core is within it, and 0 names the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_core: usize) -> bool {
    false
}

// --- Disjoint ---

/// A slice whose parts are written by several threads, each its own.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: `part`'s contract keeps the threads apart.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: std::marker::PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns a part for writing; panics when it is out of bounds.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap.
    #[expect(clippy::mut_from_ref, reason = "the parts are disjoint, by contract")]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part out of bounds");
        // SAFETY: within the slice by the assertion, exclusive by contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests;
