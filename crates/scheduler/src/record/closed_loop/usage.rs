//! How much of the nodes is requested.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::resource::names;
use supercargo_framework::{NodeInfo, Now};

use crate::scheduler::Scheduler;

/// How often the nodes are summed up, in recorded time.
const PERIOD: Duration = Duration::from_mins(1);
/// The fewest samples that have an average.
const FEWEST: u32 = 10;

/// How much of a resource pods request, in parts of what nodes offer, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// The resource.
    pub resource: Arc<str>,
    /// The average over time: as recorded, and in the model. `None` in the first minutes.
    pub average: Option<(f64, f64)>,
    /// At the end: as recorded, and in the model.
    pub last: (f64, f64),
}

/// A resource of all nodes.
#[derive(Clone, Copy, Default)]
struct Total {
    requested: i128,
    offered: i128,
}

impl Total {
    fn share(self) -> f64 {
        if self.offered == 0 { 0.0 } else { self.requested as f64 / self.offered as f64 }
    }
}

type Shares = BTreeMap<Arc<str>, f64>;

/// Sums over the samples.
#[derive(Default)]
pub(super) struct Usages {
    sums: [Shares; 2],
    count: u32,
    /// When the next sample is due, on the monotonic clock.
    next: Duration,
}

impl Usages {
    /// Adds a sample, if one is due.
    pub(super) fn sample(&mut self, now: Now, recorded: &Scheduler, modelled: &Scheduler) {
        if now.monotonic < self.next {
            return;
        }
        self.next = now.monotonic + PERIOD;
        self.add([shares(recorded), shares(modelled)]);
    }

    fn add(&mut self, shares: [Shares; 2]) {
        self.count += 1;
        for (sums, shares) in self.sums.iter_mut().zip(shares) {
            for (resource, share) in shares {
                *sums.entry(resource).or_default() += share;
            }
        }
    }

    /// The averages, and the last shares.
    pub(super) fn finish(mut self, recorded: &Scheduler, modelled: &Scheduler) -> Vec<Usage> {
        let last = [shares(recorded), shares(modelled)];
        self.add(last.clone());
        let Self { sums: [recorded, modelled], count, .. } = self;
        let samples = f64::from(count);
        let of = |shares: &Shares, resource: &Arc<str>| shares.get(resource).copied().unwrap_or_default();
        let usage = |(resource, sum): (Arc<str>, f64)| Usage {
            average: (count >= FEWEST).then(|| (sum / samples, of(&modelled, &resource) / samples)),
            last: (of(&last[0], &resource), of(&last[1], &resource)),
            resource,
        };
        recorded.into_iter().map(usage).collect()
    }
}

/// All nodes. Their visiting order stays as it is: a new one would change later decisions.
fn all_nodes(scheduler: &Scheduler) -> impl Iterator<Item = &NodeInfo> {
    let nodes = scheduler.cache.nodes();
    nodes.names().filter_map(|name| nodes.get(name))
}

fn shares(scheduler: &Scheduler) -> Shares {
    let mut totals: BTreeMap<Arc<str>, Total> = BTreeMap::new();
    for info in all_nodes(scheduler) {
        let (requested, offered) = (info.requested(), info.allocatable());
        let mut add = |name: &Arc<str>, requested: i64, offered: i64| {
            let total = totals.entry(Arc::clone(name)).or_default();
            total.requested += i128::from(requested);
            total.offered += i128::from(offered);
        };
        add(&names::CPU.into(), requested.milli_cpu, offered.milli_cpu);
        add(&names::MEMORY.into(), requested.memory, offered.memory);
        for (name, amount) in offered.scalars() {
            add(name, requested.get(name), *amount);
        }
    }
    totals.into_iter().map(|(name, total)| (name, total.share())).collect()
}

/// The number of nodes with pods.
pub(super) fn used_nodes(scheduler: &Scheduler) -> usize {
    all_nodes(scheduler).filter(|info| !info.pods().is_empty()).count()
}
