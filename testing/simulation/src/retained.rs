//! What schedulers hold: pods and nodes that they had, and memory.

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use supercargo_framework::{NodeInfo, NodeRecord, PodInfo};
use supercargo_scheduler::Scheduler;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The bytes that are allocated now.
pub fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

/// Pods on nodes, and nodes, that schedulers had. It holds none of them itself.
#[derive(Default)]
pub struct Retained {
    pods: Seen<PodInfo>,
    nodes: Seen<NodeRecord>,
}

/// Records that processes had, by address. An address is taken as long as there are weak references
/// to it.
struct Seen<T>(BTreeMap<*const T, (Arc<str>, Weak<T>)>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Seen<T> {
    fn add(&mut self, process: &Arc<str>, record: &Arc<T>) {
        let entry = self.0.entry(Arc::as_ptr(record));
        entry.or_insert_with(|| (Arc::clone(process), Arc::downgrade(record)));
    }

    /// Forgets what nobody holds.
    fn forget(&mut self) {
        self.0.retain(|_, (_, record)| record.strong_count() > 0);
    }

    /// What a process holds of those.
    fn held(&self, process: &Arc<str>) -> impl Iterator<Item = *const T> {
        let held = self.0.iter().filter(move |(_, (of, record))| of == process && record.strong_count() > 0);
        held.map(|(address, _)| *address)
    }
}

impl Retained {
    /// Notes what schedulers have.
    pub fn see<'a>(&mut self, owners: impl Iterator<Item = (&'a Arc<str>, &'a Scheduler)>) {
        self.pods.forget();
        self.nodes.forget();
        for (process, scheduler) in owners {
            for node in nodes(scheduler) {
                self.nodes.add(process, node.node());
                node.pods().iter().for_each(|pod| self.pods.add(process, pod));
            }
        }
    }

    /// The number of pods that something in a process holds, of those that it had on nodes.
    pub fn pods(&self, process: &Arc<str>) -> usize {
        self.pods.held(process).count()
    }

    /// The number of records of nodes that something in a process holds, without the current ones.
    pub fn old_nodes(&self, process: &Arc<str>, scheduler: &Scheduler) -> usize {
        let is_current = |address| nodes(scheduler).any(|node| Arc::as_ptr(node.node()) == address);
        self.nodes.held(process).filter(|address| !is_current(*address)).count()
    }
}

fn nodes(scheduler: &Scheduler) -> impl Iterator<Item = &NodeInfo> {
    let nodes = scheduler.cache().nodes();
    // The visiting order may be older than the nodes.
    nodes.names().filter_map(|name| nodes.get(name))
}
