//! The footprint of a scheduler, by its metrics and by the operating system.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::Duration;

use http::Request;
use kube::{Client, Config};

/// The allowed growth of memory that nothing uses: allocators keep some freed memory.
const MEMORY: (u64, u64) = (4, 16 << 20);

/// The metrics that must not grow: what the scheduler keeps, and what it has yet to do.
const FAMILIES: [&str; 12] = [
    "scheduler_cache_size",
    "scheduler_pending_pods",
    "supercargo_bindings_in_flight",
    "supercargo_event_series",
    "supercargo_informer_objects",
    "supercargo_informer_pending_notifications",
    "supercargo_interned_values",
    "supercargo_pending_allocations",
    "supercargo_pending_writes",
    "supercargo_table_bytes",
    "supercargo_table_changes",
    "supercargo_tables",
];

/// Counts by series, and the memory of the process in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) memory: u64,
}

/// Reads footprints.
pub(super) struct Gauges {
    pid: u32,
    client: Client,
}

impl Gauges {
    /// Reads the footprint of this process, which serves on this port.
    pub(super) fn new(pid: u32, port: u16) -> Self {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        // It creates a self-signed certificate.
        config.accept_invalid_certs = true;
        config.read_timeout = Some(Duration::from_secs(30));
        Self { pid, client: Client::try_from(config).unwrap() }
    }

    pub(super) async fn read(&self) -> Footprint {
        let request = Request::get("/metrics").body(Vec::new()).unwrap();
        let counts = counts(&self.client.request_text(request).await.unwrap());
        Footprint { counts, memory: memory(self.pid) }
    }
}

/// The counts in a text of metrics. Each family must have one, or the test compares nothing.
fn counts(metrics: &str) -> BTreeMap<String, u64> {
    let is_of = |series: &str, family: &str| series.split('{').next() == Some(family);
    let counts: BTreeMap<_, _> = metrics
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| FAMILIES.iter().any(|family| is_of(series, family)))
        .map(|(series, value)| (series.to_owned(), value.parse::<f64>().unwrap() as u64))
        .collect();
    for family in FAMILIES {
        assert!(counts.keys().any(|series| is_of(series, family)), "no {family} in:\n{metrics}");
    }
    counts
}

impl Footprint {
    /// Whether writes are pending.
    pub(super) fn is_at_work(&self) -> bool {
        let at_work = ["supercargo_bindings_in_flight", "supercargo_pending_writes"];
        self.counts
            .iter()
            .any(|(series, count)| *count > 0 && at_work.iter().any(|it| series.starts_with(it)))
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} MiB", self.memory >> 20)?;
        self.counts.iter().try_for_each(|(name, count)| write!(f, ", {name} {count}"))
    }
}

/// A process's resident memory in bytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

/// The number of latest changes that are kept in any cluster, each with up to this many distinct
/// values.
const CHANGES: u64 = 1024;
const VALUES: u64 = 2;

/// The allowed number at the end, given the number at the beginning.
fn allowed(series: &str, base: u64) -> u64 {
    match series.split('{').next().unwrap_or(series) {
        // At the beginning, the first warnings may be missing.
        "supercargo_event_series" => 0,
        "supercargo_table_changes" => CHANGES,
        // Interned values are dropped when their number has doubled, or after this many lookups.
        "supercargo_interned_values" => base + base / 5 + 64 + VALUES * CHANGES,
        // Nodes come back in another order.
        "supercargo_table_bytes" => base + base / 4,
        _ => base,
    }
}

/// The counts at the end that exceed those at the beginning by more than is allowed.
pub(super) fn surplus(base: &Footprint, end: &Footprint) -> Vec<String> {
    let counts = base.counts.keys().filter_map(|name| {
        let (before, after) = (base.counts[name], end.counts.get(name).copied());
        let allowed = allowed(name, before);
        (after.is_none_or(|after| after > allowed)).then(|| {
            format!("{name}: {before} in the beginning, {after:?} in the end, allowed are {allowed}")
        })
    });
    let allowed = base.memory + base.memory / MEMORY.0 + MEMORY.1;
    let memory = (end.memory > allowed).then(|| {
        format!(
            "memory: {} bytes in the beginning, {} in the end, allowed are {allowed}",
            base.memory, end.memory
        )
    });
    counts.chain(memory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footprint(counts: &[(&str, u64)], memory: u64) -> Footprint {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Footprint { counts, memory }
    }

    #[test]
    fn any_surplus_is_found() {
        let base = [
            ("scheduler_cache_size{type=\"pods\"}", 100),
            ("scheduler_pending_pods{queue=\"active\"}", 0),
            ("supercargo_event_series", 9),
            ("supercargo_interned_values{resource=\"pods\"}", 1000),
            ("supercargo_table_bytes", 1_000_000),
            ("supercargo_table_changes", 300),
        ];
        let before = footprint(&base, 100 << 20);
        let mut after = before.clone();
        after.counts.insert("supercargo_event_series".to_owned(), 0);
        assert_eq!(surplus(&before, &after), Vec::<String>::new());
        for (name, _) in base {
            let mut leaky = after.clone();
            let allowed = allowed(name, before.counts[name]);
            leaky.counts.insert(name.to_owned(), allowed + 1);
            let found = surplus(&before, &leaky);
            assert!(found.len() == 1 && found[0].starts_with(name), "{found:?}");
            leaky.counts.remove(name);
            assert_eq!(surplus(&before, &leaky).len(), 1, "{name} is missing");
        }
        after.memory = 142 << 20;
        let found = surplus(&before, &after);
        assert!(found.len() == 1 && found[0].starts_with("memory"), "{found:?}");
    }

    #[test]
    fn growing_process_memory_is_found() {
        let pid = std::process::id();
        let before = memory(pid);
        let ballast = vec![1_u8; 200 << 20];
        assert!(memory(pid) > before + (100 << 20), "{before}");
        assert_eq!(ballast[ballast.len() / 2], 1);
    }
}
