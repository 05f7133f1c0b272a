//! `kubectl drain`, simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::objects::{PodDisruptionBudget, Typed};
use supercargo_framework::{NodeRecord, PodInfo};

use super::cluster::{ModelCluster, is_of_node};
use super::{End, WhatIfError};

/// How many more evictions budgets allow, by key.
type Allowed = BTreeMap<Arc<str>, i32>;

impl ModelCluster<'_> {
    /// Evicts pods as budgets allow. A budget allows another eviction once a replacement has a
    /// node.
    pub(super) fn drain(&mut self, nodes: &[Arc<NodeRecord>]) -> Result<(), WhatIfError> {
        for node in nodes {
            self.cordon(node, true);
            self.drained.insert(Arc::clone(&node.name));
        }
        let mut left = Vec::new();
        for node in nodes {
            let info = self.scheduler().cache().nodes().get(&node.name);
            let pods = info.map(|info| info.pods().to_vec()).unwrap_or_default();
            let (stay, leave): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| is_of_node(pod));
            self.of_nodes += stay.len();
            left.extend(leave);
        }
        loop {
            // Others may have preempted some of them.
            left.retain(|pod| {
                let now = self.scheduler().cache().pod(&pod.uid);
                now.is_some_and(|now| now.resource_version == pod.resource_version)
            });
            let mut allowed = self.allowed();
            let (gone, held_up): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|pod| self.take(&mut allowed, pod));
            left = held_up;
            if gone.is_empty() {
                break;
            }
            for pod in &gone {
                self.evicted.insert(pod.uid.clone());
                self.evict(pod);
            }
            self.settle()?;
        }
        for pod in left {
            let Some(node) = pod.node_name.clone() else { continue };
            let budgets = self.protecting(&pod).map(|key| name(&key)).collect();
            self.fates.insert(pod.uid.clone(), End::HeldUp { node, budgets });
        }
        Ok(())
    }

    /// What the budgets allow now.
    fn allowed(&self) -> Allowed {
        self.budgets().map(|budget| (key(&budget), budget.disruptions_allowed)).collect()
    }

    /// Whether the pod may be evicted now. As upstream, a pod that several budgets protect may not,
    /// and no budget protects a pod that is being deleted.
    fn take(&self, allowed: &mut Allowed, pod: &PodInfo) -> bool {
        let mut budgets = self.protecting(pod);
        match (budgets.next(), budgets.next()) {
            (None, _) => true,
            _ if pod.terminating => true,
            (Some(_), Some(_)) => false,
            (Some(budget), None) => {
                let allowed = allowed.entry(budget).or_default();
                let may_go = *allowed > 0;
                *allowed -= i32::from(may_go);
                may_go
            }
        }
    }

    /// The keys of the budgets that protect the pod.
    fn protecting(&self, pod: &PodInfo) -> impl Iterator<Item = Arc<str>> {
        self.budgets().filter(|budget| budget.selects(pod)).map(|budget| key(&budget))
    }
}

fn key(budget: &Typed<'_, PodDisruptionBudget>) -> Arc<str> {
    Arc::clone(&budget.object.key)
}

fn name(key: &str) -> Arc<str> {
    key.rsplit('/').next().unwrap_or(key).into()
}
