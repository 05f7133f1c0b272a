//! Process metrics: from `/proc`, and of the log.

use std::fs;

use super::spec;
use super::text::Text;
use crate::logs;

/// Clock ticks per second in `/proc`; part of Linux's stable interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes the metrics that can be read; only that of the log on systems other than Linux.
pub(super) fn write(text: &mut Text) {
    text.family(&spec::LOG_LINES_DROPPED);
    text.sample(&spec::LOG_LINES_DROPPED, &[], logs::dropped_lines() as f64);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let descriptors = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    for (spec, value) in [
        (&spec::CPU_SECONDS, cpu_seconds(&stat)),
        (&spec::RESIDENT_MEMORY, bytes(&status, "VmRSS:")),
        (&spec::VIRTUAL_MEMORY, bytes(&status, "VmSize:")),
        (&spec::OPEN_FDS, descriptors),
        (&spec::MAX_FDS, most_descriptors(&limits)),
        (&spec::START_TIME, start_time(&stat, &boot)),
    ] {
        if let Some(value) = value {
            text.family(spec);
            text.sample(spec, &[], value);
        }
    }
}

/// A field of `stat` from number 3. The second is a name in parentheses that may contain anything.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

/// A value of `status` in bytes; the file has kB.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn most_descriptors(limits: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn start_time(stat: &str, boot: &str) -> Option<f64> {
    let booted: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + field(stat, 22)? / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_files_are_parsed() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 1000 9 9";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_time(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_010.0));
        assert_eq!(bytes("Name:\tx\nVmRSS:\t    1024 kB\n", "VmRSS:"), Some(1_048_576.0));
        assert_eq!(
            most_descriptors("Max cpu time unlimited\nMax open files    1024   4096   files\n"),
            Some(1024.0)
        );
        assert_eq!(cpu_seconds("nothing"), None);
    }
}
