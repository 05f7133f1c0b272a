//! Memory of the process.

use std::fs;

/// The resident memory of this process in bytes, where Linux reports it.
pub(crate) fn resident() -> Option<u64> {
    status("VmRSS:")
}

/// The peak.
pub(crate) fn peak() -> Option<u64> {
    status("VmHWM:")
}

fn status(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
