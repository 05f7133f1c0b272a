//! How full a node is of one resource, before and after a pod: what the two resource scores are made of.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::requests::PodRequests;
use supercargo_framework::resource::names;
use supercargo_framework::{NodeColumns, NodeInfo, Resource};

use crate::float_int;

/// A resource that can be scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScoredResource {
    /// CPU, in thousandths of a core.
    Cpu,
    /// Memory in bytes.
    Memory,
    /// Local ephemeral storage in bytes.
    EphemeralStorage,
    /// An extended resource or the like; only scored for pods that ask for it.
    Scalar(Arc<str>),
}

impl ScoredResource {
    /// The resource by its API name; `None` for names that nodes are never full of, such as `pods`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            names::CPU => Self::Cpu,
            names::MEMORY => Self::Memory,
            names::EPHEMERAL_STORAGE => Self::EphemeralStorage,
            scalar if names::is_scalar(scalar) => Self::Scalar(scalar.into()),
            _ => return None,
        })
    }

    /// How much of it a vector holds.
    pub(crate) fn amount(&self, vector: &Resource) -> i64 {
        match self {
            Self::Cpu => vector.milli_cpu,
            Self::Memory => vector.memory,
            Self::EphemeralStorage => vector.ephemeral_storage,
            Self::Scalar(name) => vector.scalar(name),
        }
    }

    /// The node's usage by what its pods really ask for. `None` when the resource is not to be scored.
    pub(crate) fn usage(&self, requested: &Resource, node: &NodeInfo) -> Option<Usage> {
        self.scored(node, self.amount(node.requested()), self.amount(requested))
    }

    /// The same with the scoring defaults for containers that ask for no CPU or no memory.
    pub(crate) fn usage_with_defaults(&self, requests: &PodRequests, node: &NodeInfo) -> Option<Usage> {
        match self {
            Self::Cpu => self.scored(node, node.non_zero_milli_cpu(), requests.non_zero_milli_cpu),
            Self::Memory => self.scored(node, node.non_zero_memory(), requests.non_zero_memory),
            Self::EphemeralStorage | Self::Scalar(_) => self.usage(&requests.resource, node),
        }
    }

    /// [`usage`](Self::usage) of all nodes.
    pub(crate) fn usages<'a>(&self, requested: &Resource, columns: &'a NodeColumns) -> Usages<'a> {
        let (before, capacity) = match self {
            Self::Cpu => (&columns.requested_cpu, &columns.allocatable_cpu),
            Self::Memory => (&columns.requested_memory, &columns.allocatable_memory),
            Self::EphemeralStorage => (&columns.requested_storage, &columns.allocatable_storage),
            Self::Scalar(name) if requested.scalar(name) == 0 => return Usages::LeftOut,
            Self::Scalar(_) => return Usages::NotInColumns,
        };
        Usages::Of(UsageColumns { before, capacity, added: self.amount(requested) })
    }

    /// [`usage_with_defaults`](Self::usage_with_defaults) of all nodes.
    pub(crate) fn usages_with_defaults<'a>(
        &self,
        requests: &PodRequests,
        columns: &'a NodeColumns,
    ) -> Usages<'a> {
        let (before, capacity, added) = match self {
            Self::Cpu => (&columns.non_zero_cpu, &columns.allocatable_cpu, requests.non_zero_milli_cpu),
            Self::Memory => (&columns.non_zero_memory, &columns.allocatable_memory, requests.non_zero_memory),
            Self::EphemeralStorage | Self::Scalar(_) => return self.usages(&requests.resource, columns),
        };
        Usages::Of(UsageColumns { before, capacity, added })
    }

    fn scored(&self, node: &NodeInfo, before: i64, added: i64) -> Option<Usage> {
        let capacity = self.amount(node.allocatable());
        let unwanted = added == 0 && matches!(self, Self::Scalar(_));
        (capacity != 0 && !unwanted).then(|| Usage { before, after: before.saturating_add(added), capacity })
    }
}

/// How full a node is of one resource. The capacity is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Without the pod.
    pub(crate) before: i64,
    /// With the pod.
    pub(crate) after: i64,
    /// What the node offers.
    pub(crate) capacity: i64,
}

/// How full all nodes are of one resource.
pub(crate) enum Usages<'a> {
    /// The resource is not to be scored on any node.
    LeftOut,
    /// The columns do not tell.
    NotInColumns,
    /// So full.
    Of(UsageColumns<'a>),
}

/// How full some nodes are of one resource.
#[derive(Clone, Copy)]
pub(crate) struct UsageColumns<'a> {
    /// Without the pod.
    pub(crate) before: &'a [i64],
    /// What the nodes offer.
    pub(crate) capacity: &'a [i64],
    /// What the pod adds.
    pub(crate) added: i64,
}

impl<'a> UsageColumns<'a> {
    /// The columns of all resources that are to be scored on any node; `None` when the columns do not tell.
    pub(crate) fn all<T>(
        usages: impl IntoIterator<Item = (Usages<'a>, T)>,
    ) -> Option<SmallVec<[(UsageColumns<'a>, T); 2]>> {
        let scored = usages.into_iter().filter_map(|(usages, with)| match usages {
            Usages::LeftOut => None,
            Usages::NotInColumns => Some(None),
            Usages::Of(columns) => Some(Some((columns, with))),
        });
        scored.collect()
    }

    /// Some of the nodes.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        Self { before: &self.before[range.clone()], capacity: &self.capacity[range], added: self.added }
    }

    /// One node's usage; `None` when the resource is not to be scored there.
    pub(crate) fn at(&self, i: usize) -> Option<Usage> {
        let (before, capacity) = (self.before[i], self.capacity[i]);
        (capacity != 0).then(|| Usage { before, after: before.saturating_add(self.added), capacity })
    }

    /// Whether all amounts are small enough to be computed with as floating point numbers.
    pub(crate) fn are_small(&self) -> bool {
        float_int::are_small(self.before)
            && float_int::are_small(self.capacity)
            && float_int::are_small(&[self.added])
    }
}

/// The ranges in which so many nodes are looked at together: few enough to stay close, enough to be worth a loop.
pub(crate) fn chunks(nodes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..nodes).step_by(CHUNK).map(move |start| start..nodes.min(start + CHUNK))
}

/// How many nodes are looked at together.
pub(crate) const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::{node, pod};

    use super::*;
    use crate::testing::node_info;

    #[test]
    fn usage_counts_the_pods_of_the_node_and_the_new_one() {
        let node = node_info(
            node("n")
                .allocatable("cpu", "2")
                .allocatable("memory", "1Gi")
                .allocatable("example.com/gpu", "4")
                .build(),
            [pod("a").request("cpu", "500m").build(), pod("b").request("example.com/gpu", "1").build()],
        );
        let new = pod("p").request("example.com/gpu", "2").build();
        let gpu = ScoredResource::Scalar("example.com/gpu".into());
        let usage = |before, after, capacity| Some(Usage { before, after, capacity });
        let requests = &new.spec.requests;
        let cpu = ScoredResource::Cpu;
        assert_eq!(cpu.usage(&requests.resource, &node), usage(500, 500, 2000));
        assert_eq!(cpu.usage_with_defaults(requests, &node), usage(600, 700, 2000));
        assert_eq!(gpu.usage(&requests.resource, &node), usage(1, 3, 4));
        assert_eq!(gpu.usage_with_defaults(requests, &node), usage(1, 3, 4));
        assert_eq!(
            gpu.usage(&Resource::default(), &node),
            None,
            "a scalar that the pod does not want is left out"
        );
        assert_eq!(
            ScoredResource::EphemeralStorage.usage(&requests.resource, &node),
            None,
            "a resource that the node does not have is left out"
        );
    }

    #[test]
    fn names_that_are_no_amounts_are_not_scored() {
        for (name, scored) in [("cpu", true), ("hugepages-2Mi", true), ("pods", false), ("nonsense", false)] {
            assert_eq!(ScoredResource::from_name(name).is_some(), scored, "{name}");
        }
    }
}
