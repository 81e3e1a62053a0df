//! A rank's compute thread. It serves its nodes as [`turns`](super::turns) says, spins a little for the next command, then parks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use mstar_supervisor::Incarnation;
use tokio::time::Instant;

use crate::device::turns::{Candidate, Turn, Turns};
use crate::device::{Bench, DeviceError, DeviceSpec, Install};
use crate::messages::{Batch, DeviceCommand};

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

/// What the thread knows of its nodes.
struct Serving {
    turns: Turns,
    /// Nodes that compute: the last one now, the others have yielded to it.
    busy: Vec<usize>,
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
        let mut serving = Serving { turns: Turns::new(self.queues.len()), busy: Vec::new() };
        let mut waiting = Vec::with_capacity(self.queues.len());
        while self.wait() {
            while let Some(install) = lock(&self.installs).pop_front() {
                self.pending.fetch_sub(1, Ordering::SeqCst);
                bench.install(install);
            }
            self.gather(&mut bench, &serving, &mut waiting);
            if waiting.is_empty() {
                continue;
            }
            match serving.turns.choose(&waiting, Instant::now()) {
                Turn::Run(node) => self.run(&mut bench, &mut serving, node),
                // Others may come at any moment: it is not worth to park.
                Turn::Until(_) => pause(),
            }
        }
    }

    /// Finds the batches that wait, of nodes that do not compute.
    fn gather(&self, bench: &mut Bench, serving: &Serving, waiting: &mut Vec<Candidate>) {
        waiting.clear();
        for node in (0..self.queues.len()).filter(|node| !serving.busy.contains(node)) {
            waiting.extend(self.clear_way(bench, node));
        }
    }

    /// Carries out what stands before a node's batch, and returns the batch.
    fn clear_way(&self, bench: &mut Bench, node: usize) -> Option<Candidate> {
        loop {
            let command = {
                let mut queue = lock(&self.queues[node]);
                if let DeviceCommand::Execute(Batch { sent, due, .. }) = queue.commands.front()? {
                    return Some(Candidate { node, sent: *sent, due: *due });
                }
                queue.commands.pop_front()?
            };
            self.pending.fetch_sub(1, Ordering::SeqCst);
            bench.carry_out(command, &mut |_| Duration::ZERO);
        }
    }

    fn run(&self, bench: &mut Bench, serving: &mut Serving, at: usize) {
        // A reset may have taken the batch away since.
        let Some(command) = lock(&self.queues[at]).commands.pop_front() else { return };
        self.pending.fetch_sub(1, Ordering::SeqCst);
        let mut piece = Instant::now();
        let due = if let DeviceCommand::Execute(Batch { due, .. }) = &command { *due } else { None };
        serving.busy.push(at);
        let done = bench.carry_out(command, &mut |bench| {
            let left = Instant::now();
            serving.turns.computed(at, left - piece);
            // Its next piece waits from now on: a batch that has begun is not one that waited too long.
            self.others(bench, serving, Candidate { node: at, sent: left, due });
            piece = Instant::now();
            piece - left
        });
        serving.busy.pop();
        if let Some((node, executed, _)) = done {
            let now = Instant::now();
            serving.turns.computed(at, now - piece);
            serving.turns.ended(at, executed.ran, now);
            bench.report(node, executed);
        }
    }

    /// Computes what goes before the next piece of a batch that has yielded.
    fn others(&self, bench: &mut Bench, serving: &mut Serving, own: Candidate) {
        let mut waiting = Vec::new();
        loop {
            self.gather(bench, serving, &mut waiting);
            waiting.push(own);
            match serving.turns.choose(&waiting, Instant::now()) {
                Turn::Run(node) if node == own.node => return,
                Turn::Run(node) => self.run(bench, serving, node),
                Turn::Until(_) => pause(),
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
                pause();
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

/// Lets a little time pass.
fn pause() {
    (0..32).for_each(|_| std::hint::spin_loop());
    // Where the sender shares this core, it is to have it.
    std::thread::yield_now();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use mstar_contract::{Engine, EngineUsage, ExecuteCx, Gauge, RequestKey, Row, RowProgress};
    use mstar_kernels::Cx;

    use super::*;
    use crate::messages::NodeIx;
    use crate::routes::Routes;

    const LONG: NodeIx = NodeIx(0);
    const SHORT: NodeIx = NodeIx(1);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Does what it is told with each batch, and then says so.
    struct Told<F> {
        act: F,
        said: mpsc::Sender<&'static str>,
        name: &'static str,
    }

    impl<F: FnMut(&ExecuteCx<'_>) + Send> Engine for Told<F> {
        fn execute(&mut self, _: Vec<Row>, cx: &ExecuteCx<'_>) -> Vec<RowProgress> {
            (self.act)(cx);
            self.said.send(self.name).unwrap();
            Vec::new()
        }
        fn retire(&mut self, _: RequestKey) {}
        fn reset(&mut self) {
            self.said.send("reset").unwrap();
        }
        fn usage(&self) -> EngineUsage {
            EngineUsage::default()
        }
    }

    fn device() -> ThreadDevice {
        let (cx, gauge) = (Cx::with_threads(1).unwrap(), Gauge::new("cpu0"));
        ThreadDevice::start(DeviceSpec { name: "cpu0".into(), cx, gauge, routes: Routes::new(["long", "short"]) })
            .unwrap()
    }

    fn install(device: &ThreadDevice, node: NodeIx, engine: impl Engine + 'static) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let once = Mutex::new(Some(engine));
        let make = Box::new(move |_: &Cx, _: &Arc<Gauge>| Ok(Box::new(lock(&once).take().unwrap()) as Box<dyn Engine>));
        device.install(Install { node, make, reply });
        answer.blocking_recv().unwrap().unwrap();
    }

    fn batch(node: NodeIx) -> DeviceCommand {
        let (rows, sent) = (Vec::new(), Instant::now());
        DeviceCommand::Execute(Batch { node, incarnation: Incarnation(1), rows, sent, due: None })
    }

    /// A rank with a long batch that yields until `go` is dropped, and a short one that may panic; what they say.
    fn rank(panics: bool) -> (ThreadDevice, mpsc::Sender<()>, mpsc::Receiver<&'static str>) {
        let (device, (said, heard), (go, gone)) = (device(), mpsc::channel(), mpsc::channel::<()>());
        let begins = said.clone();
        let long = move |cx: &ExecuteCx<'_>| {
            begins.send("begins").unwrap();
            while gone.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                (cx.yields)();
            }
        };
        install(&device, LONG, Told { act: long, said: said.clone(), name: "long" });
        let short = move |_: &ExecuteCx<'_>| assert!(!panics, "short cannot");
        install(&device, SHORT, Told { act: short, said, name: "short" });
        (device, go, heard)
    }

    #[test]
    fn a_batch_that_yields_lets_others_compute_and_keeps_its_own_commands_waiting() {
        let (device, go, heard) = rank(false);
        let next = || heard.recv_timeout(PATIENCE).unwrap();
        device.send(batch(LONG));
        assert_eq!(next(), "begins");
        for _ in 0..3 {
            device.send(batch(SHORT));
            assert_eq!(next(), "short");
        }
        device.send(DeviceCommand::Reset(LONG, Incarnation(1)));
        device.send(batch(SHORT));
        assert_eq!(next(), "short");
        drop(go);
        assert_eq!([next(), next()], ["long", "reset"]);
        device.stop();
    }

    #[test]
    fn a_batch_that_panics_between_pieces_takes_the_other_not_along() {
        let (device, go, heard) = rank(true);
        let next = || heard.recv_timeout(PATIENCE).unwrap();
        device.send(batch(LONG));
        assert_eq!(next(), "begins");
        device.send(batch(SHORT));
        assert_eq!(next(), "reset");
        drop(go);
        assert_eq!(next(), "long");
        device.stop();
    }
}
