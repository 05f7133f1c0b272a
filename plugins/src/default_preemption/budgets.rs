//! PodDisruptionBudgets, which preemption respects if possible.

use std::sync::Arc;

use supercargo_framework::PodInfo;
use supercargo_framework::objects::{PodDisruptionBudget, Typed};

/// The budgets that protect pods.
pub(super) struct Budgets<'a>(Vec<Typed<'a, PodDisruptionBudget>>);

/// Pods in two groups, each in the given order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Pods whose eviction violates a budget.
    pub(super) violating: Vec<Arc<PodInfo>>,
    /// All others.
    pub(super) others: Vec<Arc<PodInfo>>,
}

impl<'a> Budgets<'a> {
    /// Collects the budgets. A budget with an absent or empty selector protects nothing.
    pub(super) fn new(all: impl Iterator<Item = Typed<'a, PodDisruptionBudget>>) -> Self {
        let protects = |budget: &Typed<'_, PodDisruptionBudget>| {
            budget.selector.as_ref().is_some_and(|selector| !selector.is_empty())
        };
        Self(all.filter(protects).collect())
    }

    /// Splits the pods, evicted in this order: each eviction consumes what its budgets still allow.
    pub(super) fn split(&self, pods: Vec<Arc<PodInfo>>) -> Split {
        let mut allowed: Vec<_> = self.0.iter().map(|budget| budget.disruptions_allowed).collect();
        let mut split = Split::default();
        for pod in pods {
            let mut violates = false;
            for (budget, allowed) in self.0.iter().zip(&mut allowed) {
                if protects(budget, &pod) {
                    *allowed = allowed.saturating_sub(1);
                    violates |= *allowed < 0;
                }
            }
            if violates { &mut split.violating } else { &mut split.others }.push(pod);
        }
        split
    }
}

/// Whether the budget counts the pod. Pods that the API server is already disrupting are not
/// counted again. As upstream, pods without labels match no budget, not even one whose selector
/// matches absent labels.
fn protects(budget: &Typed<'_, PodDisruptionBudget>, pod: &PodInfo) -> bool {
    pod.labels.iter().next().is_some()
        && budget.object.namespace() == &*pod.namespace
        && budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
        && !budget.disrupted_pods.contains(&pod.name)
}
