//! Allocatable and requested resources of all nodes in columns, so that loops over all nodes can be
//! vectorised.

use bitflags::bitflags;

use crate::node_index::NodeIndex;
use crate::node_info::NodeInfo;
use crate::taint::TaintEffect;

bitflags! {
    /// Properties that most nodes lack. A plugin that depends only on such a property can skip
    /// nodes without the flag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NodeFlags: u8 {
        /// The node is cordoned.
        const UNSCHEDULABLE = 1;
        /// A NoSchedule or NoExecute taint.
        const FORBIDS = 1 << 1;
        /// A PreferNoSchedule taint.
        const DISCOURAGES = 1 << 2;
        /// The node declares features.
        const FEATURES = 1 << 3;
        /// Host ports are in use.
        const PORTS = 1 << 4;
        /// Scalar resources are offered or requested.
        const SCALARS = 1 << 5;
        /// A pod has a [doubtful](crate::VolumeSource::is_doubtful) volume.
        const DOUBTFUL_VOLUMES = 1 << 6;
    }
}

/// The number of flags that are tested together.
const FLAGS_AT_ONCE: usize = 64;

/// One value per slot of [`Nodes`](crate::Nodes), by [`NodeIndex`]. Slots without a node hold
/// zeros.
#[derive(Clone, Debug, Default)]
pub struct NodeColumns {
    /// Allocatable CPU in milli-cores.
    pub allocatable_cpu: Vec<i64>,
    /// Allocatable memory in bytes.
    pub allocatable_memory: Vec<i64>,
    /// Allocatable ephemeral storage in bytes.
    pub allocatable_storage: Vec<i64>,
    /// The maximum number of pods.
    pub allocatable_pods: Vec<i64>,
    /// The sum of the pods' CPU requests.
    pub requested_cpu: Vec<i64>,
    /// The sum of the pods' memory requests.
    pub requested_memory: Vec<i64>,
    /// The sum of the pods' ephemeral storage requests.
    pub requested_storage: Vec<i64>,
    /// The number of pods.
    pub pods: Vec<i64>,
    /// The sum of the pods' CPU requests, with the scoring default for containers without a
    /// request.
    pub non_zero_cpu: Vec<i64>,
    /// The same for memory.
    pub non_zero_memory: Vec<i64>,
    /// Properties that most nodes lack.
    pub flags: Vec<NodeFlags>,
}

/// The values of one node.
type Row = [i64; 10];

fn row(info: &NodeInfo) -> Row {
    let (offers, requested) = (info.allocatable(), info.requested());
    [
        offers.milli_cpu,
        offers.memory,
        offers.ephemeral_storage,
        offers.allowed_pod_number,
        requested.milli_cpu,
        requested.memory,
        requested.ephemeral_storage,
        info.pods().len() as i64,
        info.non_zero_milli_cpu(),
        info.non_zero_memory(),
    ]
}

fn flags(info: &NodeInfo) -> NodeFlags {
    let node = info.node();
    let has_taint = |is: fn(TaintEffect) -> bool| node.taints.iter().any(|taint| is(taint.effect));
    let scalars = [info.allocatable(), info.requested()].iter().any(|amounts| !amounts.scalars().is_empty());
    [
        (NodeFlags::UNSCHEDULABLE, node.unschedulable),
        (NodeFlags::FORBIDS, has_taint(TaintEffect::forbids)),
        (NodeFlags::DISCOURAGES, has_taint(|effect| effect == TaintEffect::PreferNoSchedule)),
        (NodeFlags::FEATURES, !node.declared_features.is_empty()),
        (NodeFlags::PORTS, !info.used_ports().is_empty()),
        (NodeFlags::SCALARS, scalars),
        (NodeFlags::DOUBTFUL_VOLUMES, info.doubtful_volumes() > 0),
    ]
    .into_iter()
    .filter_map(|(flag, is_set)| is_set.then_some(flag))
    .collect()
}

impl NodeColumns {
    /// The number of slots.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Updates a slot to its node, or to `None` if the node was removed.
    pub(crate) fn set(&mut self, index: NodeIndex, info: Option<&NodeInfo>) {
        let slot = index.0 as usize;
        let row = info.map(row).unwrap_or_default();
        for (column, value) in self.columns().into_iter().zip(row) {
            if column.len() <= slot {
                column.resize(slot + 1, 0);
            }
            column[slot] = value;
        }
        if self.flags.len() <= slot {
            self.flags.resize(slot + 1, NodeFlags::empty());
        }
        self.flags[slot] = info.map(flags).unwrap_or_default();
    }

    /// The slots with any of these flags. Slots without them cost almost nothing.
    pub fn with_flags(&self, wanted: NodeFlags) -> impl Iterator<Item = NodeIndex> {
        let chunks = self.flags.chunks(FLAGS_AT_ONCE).enumerate();
        let any = move |flags: &[NodeFlags]| {
            flags.iter().fold(0, |all, flags| all | flags.bits()) & wanted.bits() != 0
        };
        chunks.filter(move |(_, chunk)| any(chunk)).flat_map(move |(i, chunk)| {
            let flagged = chunk.iter().enumerate().filter(move |(_, flags)| flags.intersects(wanted));
            flagged.map(move |(j, _)| NodeIndex((i * FLAGS_AT_ONCE + j) as u32))
        })
    }

    fn columns(&mut self) -> [&mut Vec<i64>; 10] {
        [
            &mut self.allocatable_cpu,
            &mut self.allocatable_memory,
            &mut self.allocatable_storage,
            &mut self.allocatable_pods,
            &mut self.requested_cpu,
            &mut self.requested_memory,
            &mut self.requested_storage,
            &mut self.pods,
            &mut self.non_zero_cpu,
            &mut self.non_zero_memory,
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::nodes::Nodes;
    use crate::testing::{NodeBuilder, PodBuilder, node, pod};
    use crate::volume::{Volume, VolumeSource};

    type Case = (NodeFlags, fn(NodeBuilder) -> NodeBuilder, fn(PodBuilder) -> PodBuilder);

    #[test]
    fn flags_follow_the_node_and_its_pods() {
        let ephemeral = |pod: PodBuilder| {
            let volume = Volume { name: "v".into(), source: VolumeSource::Ephemeral };
            pod.with_spec(|spec| spec.volumes = [volume].into())
        };
        let cases: [Case; 9] = [
            (NodeFlags::empty(), |node| node, |pod| pod.request("cpu", "1")),
            (NodeFlags::UNSCHEDULABLE, NodeBuilder::unschedulable, |pod| pod),
            (NodeFlags::FORBIDS, |node| node.taint("k", "", TaintEffect::NoSchedule), |pod| pod),
            (NodeFlags::FORBIDS, |node| node.taint("k", "", TaintEffect::NoExecute), |pod| pod),
            (NodeFlags::DISCOURAGES, |node| node.taint("k", "", TaintEffect::PreferNoSchedule), |pod| pod),
            (NodeFlags::PORTS, |node| node, |pod| pod.host_port(80)),
            (NodeFlags::SCALARS, |node| node.allocatable("example.com/gpu", "1"), |pod| pod),
            (NodeFlags::SCALARS, |node| node, |pod| pod.request("example.com/gpu", "1")),
            (NodeFlags::DOUBTFUL_VOLUMES, |node| node, ephemeral),
        ];
        for (i, (flags, of_node, of_pod)) in cases.into_iter().enumerate() {
            let mut nodes = Nodes::default();
            let index = nodes.insert(NodeInfo::new(Arc::new(of_node(node("n")).build())));
            nodes.update(index, |info| info.add_pod(Arc::new(of_pod(pod("p")).build())));
            assert_eq!(nodes.columns().flags, [flags], "case {i}");
            nodes.remove(index);
            assert_eq!(nodes.columns().flags, [NodeFlags::empty()], "a free slot has no flags");
        }
    }

    #[test]
    fn with_flags_finds_slots_in_every_chunk() {
        let flagged = [3, 63, 64, 200];
        let flags =
            (0..201).map(|i| if flagged.contains(&i) { NodeFlags::PORTS } else { NodeFlags::FEATURES });
        let columns = NodeColumns { flags: flags.collect(), ..NodeColumns::default() };
        let found = |flags| columns.with_flags(flags).map(|index| index.0).collect::<Vec<_>>();
        assert_eq!(found(NodeFlags::PORTS), flagged);
        assert_eq!(found(NodeFlags::PORTS | NodeFlags::SCALARS), flagged);
        assert_eq!(found(NodeFlags::UNSCHEDULABLE), [0_u32; 0]);
    }
}
