//! `kubectl drain`, simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use supercargo_framework::objects::{PodDisruptionBudget, Typed, resources};
use supercargo_framework::{NodeRecord, PodInfo};

use super::cluster::{ModelCluster, is_of_node};
use super::{End, WhatIfError};

/// How many more evictions budgets allow, by key.
type Allowed = BTreeMap<Arc<str>, i64>;

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
            let mut allowed = self.allowed(&left);
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
            let budgets = self.protecting(&pod).map(|key| name(&key)).collect();
            self.fates.insert(pod.uid.clone(), End::HeldUp(budgets));
        }
        Ok(())
    }

    /// What the budgets of these pods allow now: what they allowed at first, and as many more as
    /// more pods have a node now.
    fn allowed(&self, pods: &[Arc<PodInfo>]) -> Allowed {
        let of_pods = |budget: &Typed<'_, PodDisruptionBudget>| pods.iter().any(|pod| budget.selects(pod));
        let count = |budget: &Typed<'_, PodDisruptionBudget>,
                     pods: &mut dyn Iterator<Item = &Arc<PodInfo>>| {
            pods.filter(|pod| !pod.terminating && budget.selects(pod)).count() as i64
        };
        let allowed = |budget: Typed<'_, PodDisruptionBudget>| {
            let (before, now) = (
                count(&budget, &mut self.at_start.iter()),
                count(&budget, &mut self.scheduler().cache().pods()),
            );
            (key(&budget), i64::from(budget.disruptions_allowed) + now - before)
        };
        self.budgets().filter(of_pods).map(allowed).collect()
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
                *allowed -= i64::from(may_go);
                may_go
            }
        }
    }

    fn budgets(&self) -> impl Iterator<Item = Typed<'_, PodDisruptionBudget>> {
        self.scheduler().objects().list(&resources::POD_DISRUPTION_BUDGET).filter_map(Typed::of)
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
