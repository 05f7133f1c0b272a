//! What nodes offer and have given away, in columns: for loops over all nodes that a compiler can vectorise.

use crate::node_info::NodeInfo;
use crate::nodes::NodeIndex;

/// One value per slot of [`Nodes`](crate::Nodes), by [`NodeIndex`]. Slots without a node hold zeros.
#[derive(Clone, Debug, Default)]
pub struct NodeColumns {
    /// Allocatable CPU in milli-cores.
    pub allocatable_cpu: Vec<i64>,
    /// Allocatable memory in bytes.
    pub allocatable_memory: Vec<i64>,
    /// Allocatable ephemeral storage in bytes.
    pub allocatable_storage: Vec<i64>,
    /// How many pods the node takes.
    pub allocatable_pods: Vec<i64>,
    /// The sum of the pods' CPU requests.
    pub requested_cpu: Vec<i64>,
    /// The sum of the pods' memory requests.
    pub requested_memory: Vec<i64>,
    /// The sum of the pods' ephemeral storage requests.
    pub requested_storage: Vec<i64>,
    /// The number of pods.
    pub pods: Vec<i64>,
    /// The sum of the pods' CPU requests with the scoring default for containers that ask for none.
    pub non_zero_cpu: Vec<i64>,
    /// The same for memory.
    pub non_zero_memory: Vec<i64>,
}

/// What the columns hold of one node.
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

impl NodeColumns {
    /// The number of slots.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Follows a node: what it is now, or `None` when it is gone.
    pub(crate) fn set(&mut self, index: NodeIndex, info: Option<&NodeInfo>) {
        let slot = index.0 as usize;
        let row = info.map(row).unwrap_or_default();
        for (column, value) in self.columns().into_iter().zip(row) {
            if column.len() <= slot {
                column.resize(slot + 1, 0);
            }
            column[slot] = value;
        }
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
