//! The cluster of a copy, as the page draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::NodeInfo;
use supercargo_page::{Node, Overview, Queue, Reason, Summary, Usage, share};
use supercargo_scheduler::{Fork, Place, QueuedPod};

use crate::pools::{pool, zone};

/// The overview of a copy.
pub fn overview(fork: &Fork) -> Overview {
    // In one pass: in a large cluster, each node comes from the memory.
    let (mut nodes, mut usage) = (Vec::new(), [Usage::default(); 2]);
    for info in fork.cache().nodes().all() {
        for (sum, (requested, allocatable)) in usage.iter_mut().zip([cpu(info), memory(info)]) {
            sum.requested = sum.requested.saturating_add(requested);
            sum.allocatable = sum.allocatable.saturating_add(allocatable);
        }
        nodes.push(node(info));
    }
    let (queue, reasons) = waiting(fork.waiting());
    let [cpu, memory] = usage;
    Overview::new(nodes, Summary { cpu, memory, queue, reasons, ..Summary::default() })
}

/// Requested and allocatable CPU.
fn cpu(info: &NodeInfo) -> (i64, i64) {
    (info.requested().milli_cpu, info.allocatable().milli_cpu)
}

/// Requested and allocatable memory.
fn memory(info: &NodeInfo) -> (i64, i64) {
    (info.requested().memory, info.allocatable().memory)
}

fn node(info: &NodeInfo) -> Node {
    let share = |(requested, allocatable)| share(requested, allocatable);
    Node {
        name: Arc::clone(info.name()),
        zone: zone(info.node()),
        pool: pool(info.node()),
        cpu: share(cpu(info)),
        memory: share(memory(info)),
        pods: u32::try_from(info.pods().len()).unwrap_or(u32::MAX),
        is_cordoned: info.node().unschedulable,
    }
}

/// Where pods wait, and which plugins rejected them.
fn waiting<'a>(waiting: impl Iterator<Item = (Place, &'a QueuedPod)>) -> (Queue, Vec<Reason>) {
    let mut queue = Queue::default();
    let mut reasons: BTreeMap<BTreeSet<&str>, usize> = BTreeMap::new();
    for (place, pod) in waiting {
        match place {
            Place::Active | Place::Aside => queue.active += 1,
            Place::Backoff => queue.backoff += 1,
            Place::Unschedulable => queue.unschedulable += 1,
            Place::Gated => queue.gated += 1,
            Place::InFlight => continue,
        }
        let rejected = pod.unschedulable_plugins.iter().chain(&pod.pending_plugins).chain(&pod.gating_plugin);
        let plugins: BTreeSet<&str> = rejected.map(|plugin| &**plugin).collect();
        if !plugins.is_empty() {
            *reasons.entry(plugins).or_default() += 1;
        }
    }
    let reason = |(plugins, pods): (BTreeSet<&str>, usize)| Reason {
        plugins: plugins.into_iter().map(str::to_owned).collect(),
        pods,
    };
    (queue, reasons.into_iter().map(reason).collect())
}
