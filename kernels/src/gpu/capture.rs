//! Captured steps: a step whose launches cost the host more than the device is noted once and run again as a whole.
//!
//! A step is the same code each time. The first time it simply runs. The second time its launches are noted while the
//! memory they use is kept for them. From then on the code runs with nothing launched: it gets the same memory in the
//! same order, its uploads (ids, positions, page tables) go where they went, every launch is compared with the one that
//! was noted, and when all agree the whole is launched at once. A step that turns out different is run plainly and noted
//! anew. So a captured step cannot compute anything but what its code says. What cannot be captured runs plainly for ever.
//!
//! The values a captured step returns lie where the last ones did: they must be read before the step runs again. A step
//! reads nothing back to the host; what it needs and what changes comes from the host or lies in tensors that stay.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::driver::{Arg, Launch, Product};
use super::handle::Gpu;
use crate::KernelError;

mod modes;
pub(super) use modes::Mode;
use modes::{Recording, Replaying};

/// What was noted, to run again.
pub trait Replay: Debug + Send {
    /// Runs it, in its place in the stream.
    fn run(&self) -> Result<(), KernelError>;
}

/// Captured steps of one device, by the shape that distinguishes them (rows of a batch, say).
#[derive(Debug)]
pub struct Captures {
    gpu: Arc<Gpu>,
    steps: BTreeMap<u64, Known>,
    /// Steps that ran as a whole.
    replayed: u64,
    /// Why the last step that could not be captured could not.
    refused: Option<KernelError>,
}

#[derive(Debug)]
enum Known {
    /// It ran once, plainly: kernels are compiled, algorithms chosen.
    Warm,
    Captured(Captured),
    /// It cannot be captured.
    Plain,
}

#[derive(Debug)]
struct Captured {
    log: Arc<Vec<Event>>,
    graph: Box<dyn Replay>,
    /// The memory it uses, wherever its values are by now.
    kept: Vec<u64>,
}

/// What a step asked of the device.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Take { size: usize, address: u64 },
    Upload { address: u64, bytes: usize },
    Launch { kernel: &'static str, grid: [u32; 3], threads: u32, args: Vec<Arg> },
    Multiply { product: Product, done: bool },
    Copy { to: u64, from: u64, bytes: usize },
    Zero { at: u64, bytes: usize },
}

// --- impl Captures ---

impl Captures {
    /// Holds the captured steps of a device.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: Arc::clone(gpu), steps: BTreeMap::new(), replayed: 0, refused: None }
    }

    /// Returns how many steps ran as a whole.
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// Returns why a step could not be captured, if one could not.
    pub fn refused(&self) -> Option<&KernelError> {
        self.refused.as_ref()
    }

    /// Runs a step, captured where it is known by its key. `step` may be called twice, and must ask the device for the
    /// same each time.
    pub fn run<T, E: From<KernelError>>(&mut self, key: u64, mut step: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        match self.steps.get(&key) {
            None => {
                let value = step()?;
                self.steps.insert(key, Known::Warm);
                Ok(value)
            }
            Some(Known::Plain) => step(),
            Some(Known::Warm) => match self.capture(&mut step) {
                Ok((value, captured)) => {
                    self.steps.insert(key, Known::Captured(captured));
                    Ok(value)
                }
                Err(refused) => {
                    self.refused = Some(refused);
                    self.steps.insert(key, Known::Plain);
                    step()
                }
            },
            Some(Known::Captured(captured)) => {
                if let Some(value) = self.replay(captured, &mut step) {
                    self.replayed += 1;
                    return Ok(value);
                }
                if let Some(Known::Captured(captured)) = self.steps.insert(key, Known::Warm) {
                    self.forget(captured)?;
                }
                step()
            }
        }
    }

    /// Notes a step and runs what was noted.
    fn capture<T, E>(&self, step: &mut impl FnMut() -> Result<T, E>) -> Result<(T, Captured), KernelError> {
        self.gpu.driver().begin_capture()?;
        let mut special = Special::begin(&self.gpu, Mode::Recording(Recording::new()));
        let outcome = step();
        let mode = special.end();
        let graph = self.gpu.driver().end_capture();
        let Mode::Recording(recording) = mode else { return Err(failed("another step was captured meanwhile")) };
        let (log, kept, filled) = recording.end(&self.gpu);
        let captured = graph.and_then(|graph| {
            for (address, bytes) in &filled {
                // SAFETY: the step took this memory for these bytes.
                unsafe { self.gpu.driver().upload(*address, bytes)? };
            }
            Ok(graph)
        });
        match (outcome, captured) {
            (Ok(value), Ok(graph)) => {
                let captured = Captured { log: Arc::new(log), graph, kept };
                if let Err(error) = captured.graph.run() {
                    self.forget(captured)?;
                    return Err(error);
                }
                Ok((value, captured))
            }
            (outcome, captured) => {
                // The graph goes first, then what it used.
                let refused = captured.map(drop).err();
                self.gpu.keep_no_more(&kept);
                let reads_back =
                    || failed("the step failed while it was noted: it reads back, or goes wrong by itself");
                Err(refused.unwrap_or_else(|| if outcome.is_err() { reads_back() } else { failed("no graph") }))
            }
        }
    }

    /// Returns nothing when the step was not the noted one.
    fn replay<T, E>(&self, captured: &Captured, step: &mut impl FnMut() -> Result<T, E>) -> Option<T> {
        let mut special = Special::begin(&self.gpu, Mode::Replaying(Replaying::new(Arc::clone(&captured.log))));
        let outcome = step();
        let Mode::Replaying(replaying) = special.end() else { return None };
        let uploads = replaying.end(&self.gpu);
        let (value, uploads) = (outcome.ok()?, uploads?);
        for (address, bytes) in &uploads {
            // SAFETY: the step was noted with an upload of this length to this place.
            unsafe { self.gpu.driver().upload(*address, bytes) }.ok()?;
        }
        captured.graph.run().ok()?;
        Some(value)
    }

    /// Gives up a captured step: nothing runs it any more when its memory is handed out again.
    fn forget(&self, captured: Captured) -> Result<(), KernelError> {
        self.gpu.finish()?;
        drop(captured.graph);
        self.gpu.keep_no_more(&captured.kept);
        Ok(())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        for known in std::mem::take(&mut self.steps).into_values() {
            if let Known::Captured(captured) = known {
                // A device that failed has told so where the step ran.
                let _ = self.forget(captured);
            }
        }
    }
}

/// A device that notes or compares, until it is told to work again: also when the step panics.
struct Special<'a> {
    gpu: &'a Gpu,
    /// Something is being captured that nobody may ask for any more.
    captures: bool,
}

// --- impl Special ---

impl<'a> Special<'a> {
    fn begin(gpu: &'a Gpu, mode: Mode) -> Self {
        let captures = matches!(mode, Mode::Recording(_));
        *gpu.mode() = mode;
        Self { gpu, captures }
    }

    fn end(&mut self) -> Mode {
        self.captures = false;
        std::mem::take(&mut *self.gpu.mode())
    }
}

impl Drop for Special<'_> {
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.gpu.mode());
        if self.captures {
            // The step panicked: what it noted is dropped unrun, and then its memory is free.
            drop(self.gpu.driver().end_capture());
        }
        match left {
            Mode::Recording(recording) => {
                let (_, kept, _) = recording.end(self.gpu);
                self.gpu.keep_no_more(&kept);
            }
            Mode::Replaying(replaying) => drop(replaying.end(self.gpu)),
            Mode::Plain => {}
        }
    }
}

// --- impl Event ---

impl Event {
    fn launched(launch: &Launch<'_>) -> Self {
        let Launch { kernel, grid, threads, args } = *launch;
        Self::Launch { kernel, grid, threads, args: args.to_vec() }
    }

    /// Compares without a copy.
    fn is_launch(&self, launch: &Launch<'_>) -> bool {
        match self {
            Self::Launch { kernel, grid, threads, args } => {
                let noted = Launch { kernel, grid: *grid, threads: *threads, args };
                noted == *launch
            }
            _ => false,
        }
    }
}

fn failed(reason: &str) -> KernelError {
    KernelError::Gpu { what: "capture".to_owned(), reason: reason.to_owned() }
}
