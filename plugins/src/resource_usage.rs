//! The usage of one resource on a node, with and without a pod: the input of both resource scores.

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
    /// CPU, in milli-cores.
    Cpu,
    /// Memory in bytes.
    Memory,
    /// Local ephemeral storage in bytes.
    EphemeralStorage,
    /// A scalar resource; scored only for pods that request it.
    Scalar(Arc<str>),
}

impl ScoredResource {
    /// The resource by its API name; `None` for names that cannot be scored, such as `pods`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            names::CPU => Self::Cpu,
            names::MEMORY => Self::Memory,
            names::EPHEMERAL_STORAGE => Self::EphemeralStorage,
            scalar if names::is_scalar(scalar) => Self::Scalar(scalar.into()),
            _ => return None,
        })
    }

    /// The name of a scalar resource.
    pub(crate) fn scalar_name(&self) -> Option<&str> {
        match self {
            Self::Scalar(name) => Some(name),
            _ => None,
        }
    }

    /// The amount in a vector.
    pub(crate) fn amount(&self, vector: &Resource) -> i64 {
        match self {
            Self::Cpu => vector.milli_cpu,
            Self::Memory => vector.memory,
            Self::EphemeralStorage => vector.ephemeral_storage,
            Self::Scalar(name) => vector.scalar(name),
        }
    }

    /// The node's usage by actual requests. `None` if the resource is not scored.
    pub(crate) fn usage(
        &self,
        requested: &Resource,
        node: &NodeInfo,
        of_devices: &DeviceUsage<'_>,
    ) -> Option<Usage> {
        let added = self.amount(requested);
        match self {
            Self::Scalar(name) if added != 0 && node.allocatable().scalar(name) == 0 => {
                let (before, capacity) = of_devices(name)?;
                Some(Usage { before, after: before.saturating_add(added), capacity })
            }
            _ => self.scored(node, self.amount(node.requested()), added),
        }
    }

    /// The same, with the scoring defaults for containers without CPU or memory requests.
    pub(crate) fn usage_with_defaults(
        &self,
        requests: &PodRequests,
        node: &NodeInfo,
        of_devices: &DeviceUsage<'_>,
    ) -> Option<Usage> {
        match self {
            Self::Cpu | Self::Memory => {
                self.scored(node, self.taken_with_defaults(node), self.requested_with_defaults(requests))
            }
            Self::EphemeralStorage | Self::Scalar(_) => self.usage(&requests.resource, node, of_devices),
        }
    }

    /// The same for several pods, as if these nodes were one. Devices do not count.
    pub(crate) fn usage_of_nodes<'a>(
        &self,
        requests: impl Iterator<Item = &'a PodRequests>,
        nodes: impl Iterator<Item = &'a NodeInfo>,
    ) -> Option<Usage> {
        let added = requests.map(|requests| self.requested_with_defaults(requests));
        let added = added.fold(0_i64, i64::wrapping_add);
        let usages = nodes.filter_map(|node| self.scored(node, self.taken_with_defaults(node), added));
        let (before, capacity) = usages.fold((0_i64, 0_i64), |(before, capacity), usage| {
            (before.wrapping_add(usage.before), capacity.wrapping_add(usage.capacity))
        });
        (capacity != 0).then(|| Usage { before, after: before.wrapping_add(added), capacity })
    }

    fn requested_with_defaults(&self, requests: &PodRequests) -> i64 {
        match self {
            Self::Cpu => requests.non_zero_milli_cpu,
            Self::Memory => requests.non_zero_memory,
            Self::EphemeralStorage | Self::Scalar(_) => self.amount(&requests.resource),
        }
    }

    fn taken_with_defaults(&self, node: &NodeInfo) -> i64 {
        match self {
            Self::Cpu => node.non_zero_milli_cpu(),
            Self::Memory => node.non_zero_memory(),
            Self::EphemeralStorage | Self::Scalar(_) => self.amount(node.requested()),
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

/// How many devices that provide an extended resource a node has in use, and in all; `None` without
/// any.
pub(crate) type DeviceUsage<'a> = dyn Fn(&str) -> Option<(i64, i64)> + 'a;

/// The usage of one resource on a node. The capacity is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Without the pod.
    pub(crate) before: i64,
    /// With the pod.
    pub(crate) after: i64,
    /// The node's allocatable amount.
    pub(crate) capacity: i64,
}

/// The usage of one resource on all nodes.
pub(crate) enum Usages<'a> {
    /// The resource is not scored on any node.
    LeftOut,
    /// The columns do not tell.
    NotInColumns,
    /// The usage.
    Of(UsageColumns<'a>),
}

/// The usage of one resource on some nodes.
#[derive(Clone, Copy)]
pub(crate) struct UsageColumns<'a> {
    /// Without the pod.
    pub(crate) before: &'a [i64],
    /// The nodes' allocatable amounts.
    pub(crate) capacity: &'a [i64],
    /// The pod's request.
    pub(crate) added: i64,
}

impl<'a> UsageColumns<'a> {
    /// The columns of all resources that are scored on any node; `None` if the columns do not
    /// suffice.
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

    /// One node's usage; `None` if the resource is not scored there.
    pub(crate) fn at(&self, i: usize) -> Option<Usage> {
        let (before, capacity) = (self.before[i], self.capacity[i]);
        (capacity != 0).then(|| Usage { before, after: before.saturating_add(self.added), capacity })
    }

    /// Whether all amounts are small enough for floating-point arithmetic.
    pub(crate) fn are_small(&self) -> bool {
        float_int::are_small(self.before)
            && float_int::are_small(self.capacity)
            && float_int::are_small(&[self.added])
    }
}

/// The ranges of nodes that are processed together: few enough to stay in the cache, enough for a
/// vectorised loop.
pub(crate) fn chunks(nodes: usize) -> impl Iterator<Item = Range<usize>> {
    (0..nodes).step_by(CHUNK).map(move |start| start..nodes.min(start + CHUNK))
}

/// The number of nodes that are processed together.
pub(crate) const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::{node, node_info, pod};

    use super::*;

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
        let none = |_: &str| None;
        assert_eq!(cpu.usage(&requests.resource, &node, &none), usage(500, 500, 2000));
        assert_eq!(cpu.usage_with_defaults(requests, &node, &none), usage(600, 700, 2000));
        assert_eq!(gpu.usage(&requests.resource, &node, &none), usage(1, 3, 4));
        assert_eq!(gpu.usage_with_defaults(requests, &node, &none), usage(1, 3, 4));
        assert_eq!(
            gpu.usage(&Resource::default(), &node, &none),
            None,
            "a scalar that the pod does not request is skipped"
        );
        assert_eq!(
            ScoredResource::EphemeralStorage.usage(&requests.resource, &node, &none),
            None,
            "a resource that the node does not have is skipped"
        );
    }

    #[test]
    fn unknown_resources_are_not_scored() {
        for (name, scored) in [("cpu", true), ("hugepages-2Mi", true), ("pods", false), ("nonsense", false)] {
            assert_eq!(ScoredResource::from_name(name).is_some(), scored, "{name}");
        }
    }
}
