//! A rank's compute thread. It serves its nodes in turn, spins a little for the next command, then parks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use mstar_supervisor::Incarnation;
use tokio::time::Instant;

use crate::device::{Bench, DeviceError, DeviceSpec, Install};
use crate::messages::DeviceCommand;

/// How long the thread spins before it parks: a step's way to its walker and back is shorter.
const SPIN: Duration = Duration::from_micros(50);

/// Addresses a compute thread. Cheap to clone; the thread ends after the last clone's `stop`.
#[derive(Clone)]
pub struct ThreadDevice {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    /// One queue per node.
    queues: Vec<Mutex<Queue>>,
    installs: Mutex<VecDeque<Install>>,
    /// Commands in all queues.
    pending: AtomicUsize,
    parked: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<Thread>,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<DeviceCommand>,
    /// The node's latest life.
    life: Option<Incarnation>,
}

// --- impl ThreadDevice ---

impl ThreadDevice {
    /// Starts a rank's compute thread, without engines.
    pub fn start(spec: DeviceSpec) -> Result<Self, DeviceError> {
        let shared = Arc::new(Shared {
            name: Arc::clone(&spec.name),
            queues: spec.routes.nodes().map(|_| Mutex::default()).collect(),
            installs: Mutex::default(),
            pending: AtomicUsize::new(0),
            parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let (name, served) = (Arc::clone(&spec.name), Arc::clone(&shared));
        let spawned = std::thread::Builder::new().name(format!("rank-{name}")).spawn(move || served.serve(spec));
        let handle = spawned.map_err(|error| DeviceError::Start(name, error.to_string()))?;
        shared.thread.get_or_init(|| handle.thread().clone());
        Ok(Self { shared })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    pub(crate) fn install(&self, install: Install) {
        lock(&self.shared.installs).push_back(install);
        self.shared.announce(1);
    }

    pub(crate) fn send(&self, command: DeviceCommand) {
        let Some(queue) = self.shared.queues.get(command.node().0 as usize) else { return };
        let (added, dropped) = lock(queue).push(command);
        self.shared.pending.fetch_sub(dropped, Ordering::SeqCst);
        self.shared.announce(added);
    }

    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.announce(0);
    }
}

impl std::fmt::Debug for ThreadDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ThreadDevice").field(&self.shared.name).finish()
    }
}

// --- impl Queue ---

impl Queue {
    /// Queues a command. Returns how many were added, and how many were dropped for it.
    fn push(&mut self, command: DeviceCommand) -> (usize, usize) {
        let before = self.commands.len();
        if let DeviceCommand::Reset(_, life) = command {
            if self.life > Some(life) {
                return (0, 0);
            }
            // What the dead life asked for is of no use to anybody.
            self.life = Some(life);
            self.commands.retain(|command| matches!(command, DeviceCommand::Usage(..)));
        }
        let dropped = before - self.commands.len();
        self.commands.push_back(command);
        (1, dropped)
    }
}

// --- impl Shared ---

impl Shared {
    fn announce(&self, commands: usize) {
        self.pending.fetch_add(commands, Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    fn serve(&self, spec: DeviceSpec) {
        let mut bench = Bench::new(spec);
        let mut turn = 0;
        while self.wait() {
            while let Some(install) = lock(&self.installs).pop_front() {
                self.pending.fetch_sub(1, Ordering::SeqCst);
                bench.install(install);
            }
            for at in 0..self.queues.len() {
                let node = (turn + at) % self.queues.len();
                if self.serve_node(&mut bench, node) {
                    turn = node + 1;
                    break;
                }
            }
        }
    }

    /// Carries out a node's commands up to its batch. Returns whether there was a batch.
    fn serve_node(&self, bench: &mut Bench, node: usize) -> bool {
        loop {
            let Some(command) = lock(&self.queues[node]).commands.pop_front() else { return false };
            self.pending.fetch_sub(1, Ordering::SeqCst);
            if let Some((node, executed, _)) = bench.carry_out(command) {
                bench.report(node, executed);
                return true;
            }
        }
    }

    /// Waits for a command. Returns false when the thread is to end.
    fn wait(&self) -> bool {
        let mut since = None;
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return false;
            }
            if self.pending.load(Ordering::SeqCst) > 0 {
                return true;
            }
            let start = *since.get_or_insert_with(Instant::now);
            if start.elapsed() < SPIN {
                (0..32).for_each(|_| std::hint::spin_loop());
                // Where the sender shares this core, it is to have it.
                std::thread::yield_now();
                continue;
            }
            self.parked.store(true, Ordering::SeqCst);
            // A command that came before the flag was up did not wake the thread.
            if self.pending.load(Ordering::SeqCst) == 0 && !self.stopping.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.parked.store(false, Ordering::SeqCst);
            since = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
