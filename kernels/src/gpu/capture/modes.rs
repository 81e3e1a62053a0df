//! What a device does with a step while it is noted, and while its code runs again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::ThreadId;

use super::{Event, failed};
use crate::KernelError;
use crate::gpu::driver::{Launch, Product};
use crate::gpu::handle::Gpu;
use crate::gpu::memory::FreeMemory;
use crate::gpu::staged::Staged;

/// How a device treats what is asked of it.
#[derive(Debug, Default)]
pub(in crate::gpu) enum Mode {
    /// Does it.
    #[default]
    Plain,
    /// Notes it.
    Recording(Recording),
    /// Compares it with what was noted.
    Replaying(Replaying),
}

/// A step being noted.
#[derive(Debug)]
pub(in crate::gpu) struct Recording {
    thread: ThreadId,
    log: Vec<Event>,
    /// All memory the step has taken.
    kept: BTreeSet<u64>,
    /// What of it the step has dropped again.
    free: FreeMemory,
    /// Bytes that uploads put into memory before the rest runs: that memory is never used twice.
    filled: BTreeMap<u64, Vec<u8>>,
    upload_follows: bool,
    staged: Staged,
}

/// A captured step whose code runs again.
#[derive(Debug)]
pub(in crate::gpu) struct Replaying {
    log: Arc<Vec<Event>>,
    at: usize,
    diverged: bool,
    /// Uploads, held back until the whole step has proved to be the noted one.
    uploads: Vec<(u64, Vec<u8>)>,
    staged: Staged,
}

// --- impl Mode ---

impl Mode {
    /// Returns the inputs of the step that is noted or compared, if one is.
    pub(in crate::gpu) fn staged(&mut self) -> Option<&mut Staged> {
        match self {
            Self::Plain => None,
            Self::Recording(recording) => Some(&mut recording.staged),
            Self::Replaying(replaying) => Some(&mut replaying.staged),
        }
    }

    /// Announces that the memory taken next is for an upload.
    pub(in crate::gpu) fn upload_follows(&mut self) {
        if let Self::Recording(recording) = self {
            recording.upload_follows = true;
        }
    }

    /// Keeps an upload for later; says `false` when it is to happen now.
    pub(in crate::gpu) fn defers_upload(&mut self, address: u64, bytes: &[u8]) -> Result<bool, KernelError> {
        match self {
            Self::Plain => Ok(false),
            Self::Recording(recording) => {
                recording.log.push(Event::Upload { address, bytes: bytes.len() });
                recording.filled.insert(address, bytes.to_vec());
                Ok(true)
            }
            Self::Replaying(replaying) => {
                replaying.expect(&Event::Upload { address, bytes: bytes.len() })?;
                replaying.uploads.push((address, bytes.to_vec()));
                Ok(true)
            }
        }
    }

    /// Notes something that was done.
    pub(in crate::gpu) fn note_launch(&mut self, launch: &Launch<'_>) {
        if let Self::Recording(recording) = self {
            recording.log.push(Event::launched(launch));
        }
    }

    pub(in crate::gpu) fn note_product(&mut self, product: &Product, done: bool) {
        if let Self::Recording(recording) = self {
            recording.log.push(Event::Multiply { product: *product, done });
        }
    }

    pub(in crate::gpu) fn note_copy(&mut self, (to, from): (u64, u64), bytes: usize) {
        if let Self::Recording(recording) = self {
            recording.log.push(Event::Copy { to, from, bytes });
        }
    }

    pub(in crate::gpu) fn note_zero(&mut self, at: u64, bytes: usize) {
        if let Self::Recording(recording) = self {
            recording.log.push(Event::Zero { at, bytes });
        }
    }

    /// Lets the step that is noted use memory again that it has dropped.
    pub(in crate::gpu) fn takes_back(&mut self, address: u64, size: usize) {
        if let Self::Recording(recording) = self
            && recording.kept.contains(&address)
            && !recording.filled.contains_key(&address)
        {
            recording.free.put(address, size);
        }
    }

    pub(in crate::gpu) fn refuse_download(&mut self) -> Result<(), KernelError> {
        match self {
            Self::Plain => Ok(()),
            Self::Recording(_) => Err(failed("a captured step reads nothing back")),
            Self::Replaying(replaying) => Err(replaying.differs()),
        }
    }
}

// --- impl Recording ---

impl Recording {
    pub(super) fn new() -> Self {
        Self {
            thread: std::thread::current().id(),
            log: Vec::new(),
            kept: BTreeSet::new(),
            free: FreeMemory::default(),
            filled: BTreeMap::new(),
            upload_follows: false,
            staged: Staged::default(),
        }
    }

    /// Takes memory for the step.
    pub(in crate::gpu) fn take(
        &mut self,
        size: usize,
        fresh: impl FnOnce() -> Result<u64, KernelError>,
    ) -> Result<u64, KernelError> {
        if self.thread != std::thread::current().id() {
            return Err(failed("another thread's step is being captured"));
        }
        let dropped = if std::mem::take(&mut self.upload_follows) { None } else { self.free.take(size) };
        let address = match dropped {
            Some(address) => address,
            None => fresh()?,
        };
        self.log.push(Event::Take { size, address });
        self.kept.insert(address);
        Ok(address)
    }

    /// Returns what was noted, the memory it uses, and the uploads to do before.
    pub(super) fn end(mut self, gpu: &Gpu) -> (Vec<Event>, Vec<u64>, BTreeMap<u64, Vec<u8>>) {
        self.staged.drain().into_iter().for_each(|(address, size)| gpu.put_back(address, size));
        (self.log, self.kept.into_iter().collect(), self.filled)
    }
}

// --- impl Replaying ---

impl Replaying {
    pub(super) fn new(log: Arc<Vec<Event>>) -> Self {
        Self { log, at: 0, diverged: false, uploads: Vec::new(), staged: Staged::default() }
    }

    /// Returns the memory that the step took at this point when it was noted.
    pub(in crate::gpu) fn take(&mut self, size: usize) -> Result<u64, KernelError> {
        let noted = self.log.get(self.at).filter(|_| !self.diverged);
        match noted {
            Some(&Event::Take { size: as_noted, address }) if as_noted == size => {
                self.at += 1;
                Ok(address)
            }
            _ => Err(self.differs()),
        }
    }

    pub(in crate::gpu) fn launch(&mut self, launch: &Launch<'_>) -> Result<(), KernelError> {
        self.pass(|event| event.is_launch(launch))
    }

    pub(in crate::gpu) fn multiply(&mut self, product: &Product) -> Result<bool, KernelError> {
        let noted = self.log.get(self.at);
        let done = matches!(noted, Some(Event::Multiply { done: true, .. }));
        self.expect(&Event::Multiply { product: *product, done }).map(|()| done)
    }

    pub(in crate::gpu) fn copy(&mut self, (to, from): (u64, u64), bytes: usize) -> Result<(), KernelError> {
        self.expect(&Event::Copy { to, from, bytes })
    }

    pub(in crate::gpu) fn zero(&mut self, at: u64, bytes: usize) -> Result<(), KernelError> {
        self.expect(&Event::Zero { at, bytes })
    }

    /// Returns the uploads to do before the step runs, if it is the noted one.
    pub(super) fn end(mut self, gpu: &Gpu) -> Option<Vec<(u64, Vec<u8>)>> {
        self.staged.drain().into_iter().for_each(|(address, size)| gpu.put_back(address, size));
        (!self.diverged && self.at == self.log.len()).then_some(self.uploads)
    }

    fn expect(&mut self, event: &Event) -> Result<(), KernelError> {
        self.pass(|noted| noted == event)
    }

    fn pass(&mut self, is_noted: impl FnOnce(&Event) -> bool) -> Result<(), KernelError> {
        if self.diverged || !self.log.get(self.at).is_some_and(is_noted) {
            return Err(self.differs());
        }
        self.at += 1;
        Ok(())
    }

    fn differs(&mut self) -> KernelError {
        self.diverged = true;
        failed("the step differs from the captured one")
    }
}
