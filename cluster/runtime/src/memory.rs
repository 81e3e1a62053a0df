//! How much memory there is to share out: what the machine has left, or less where the process may use less.

use std::fs::read_to_string;

/// Returns the bytes that are available now, where the system tells.
pub(crate) fn available() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let group = |name: &str| read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok();
    let group = group("max").zip(group("current")).and_then(|(most, used)| of_group(&most, &used));
    machine.into_iter().chain(group).min()
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn of_group(most: &str, used: &str) -> Option<u64> {
    // Without a bound it reads `max`.
    let (most, used): (u64, u64) = (most.trim().parse().ok()?, used.trim().parse().ok()?);
    Some(most.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        let meminfo = "MemTotal:       24682676 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(of_machine(meminfo), Some(2 << 20));
        assert_eq!(of_machine("MemTotal: 1 kB"), None);
        assert_eq!(of_group("1000\n", "400\n"), Some(600));
        assert_eq!((of_group("max\n", "400\n"), of_group("10", "11")), (None, Some(0)));
    }
}
