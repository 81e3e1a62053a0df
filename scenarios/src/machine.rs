//! What the machine says: what it is, how busy it is, how much memory processes hold.

use serde_json::{Value, json};

/// Returns the load average of the last minute; nothing where the system does not tell.
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the resident memory of this process in bytes; nothing where the system does not tell.
pub(crate) fn resident() -> Option<u64> {
    memory(std::process::id(), "VmRSS:")
}

/// Returns the most memory that a process ever held, or since it was forgotten; nothing where the system does not tell.
pub(crate) fn peak(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// Lets the count of the most memory of a process begin anew, where the system allows that.
pub(crate) fn forget_peak(pid: u32) {
    // Without the right to do so the peak since the process began is told: more, never less.
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Returns what the machine is: processor, cores, memory, system.
pub(crate) fn describe() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "processor": model.map(|(_, name)| name.trim()),
        "cores": std::thread::available_parallelism().ok().map(std::num::NonZero::get),
        "memory_gib": kibibytes(&read("/proc/meminfo"), "MemTotal:").map(|bytes| rounded(bytes as f64 / 2f64.powi(30), 1)),
        "system": format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
    })
}

fn memory(pid: u32, name: &str) -> Option<u64> {
    kibibytes(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, name)
}

/// Returns the value of a line such as `VmRSS: 12 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns bytes as mebibytes, with one decimal.
pub(crate) fn mebibytes(bytes: f64) -> f64 {
    rounded(bytes / f64::from(1 << 20), 1)
}

/// Returns a number with so many decimals, for reading.
pub(crate) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}
