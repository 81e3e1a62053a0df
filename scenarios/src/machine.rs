//! What the machine says: how busy it is, how much memory this process holds.

/// Returns the load average of the last minute; nothing where the system does not tell.
pub(crate) fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the resident memory of this process in bytes; nothing where the system does not tell.
pub(crate) fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
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
