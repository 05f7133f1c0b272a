//! The nodes that see a pool.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::DeviceId;

use super::Inventory;
use crate::allocated::PoolId;
use crate::features::Features;

/// The most slices of a pool whose nodes are listed.
const MAX_LISTED: usize = 64;

/// The nodes for which a change can alter what is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// These, by name; some may be there several times.
    Nodes(SmallVec<[Arc<str>; 2]>),
    /// Possibly all.
    All,
}

impl Inventory {
    /// The nodes that see the pool of a device. A claim that gets a device of the pool, or gives it
    /// back, concerns no other nodes.
    pub fn reach_of_device(&self, device: &DeviceId, features: Features) -> Reach {
        self.reach(&PoolId::of(device), features)
    }

    /// The nodes that see the pool of a ResourceSlice, by the name of the slice. A change of the
    /// slice concerns those that see its pool before the change, and those that see its pool after
    /// it.
    pub fn reach_of_slice(&self, name: &str, features: Features) -> Reach {
        self.slices
            .get(name)
            .map_or(Reach::Nodes(SmallVec::new()), |slice| self.reach(slice.pool(), features))
    }

    /// Devices of a pool are visible on the nodes that its slices name. What is valid, complete and
    /// available there depends on the whole pool.
    fn reach(&self, pool: &PoolId, features: Features) -> Reach {
        let has_all_counters = features.is_stable() && features.partitionable_devices;
        let mut nodes = SmallVec::new();
        let generations = self.pools.get(pool).into_iter().flat_map(|generations| generations.values());
        for generation in generations {
            if nodes.len() + generation.slices.len() > MAX_LISTED
                || (has_all_counters && generation.with_counters > 0)
            {
                return Reach::All;
            }
            for slice in generation.slices.values() {
                let Some(node) = slice.node_name() else { return Reach::All };
                if !nodes.contains(node) {
                    nodes.push(Arc::clone(node));
                }
            }
        }
        Reach::Nodes(nodes)
    }
}
