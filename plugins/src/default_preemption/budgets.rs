//! PodDisruptionBudgets, which say whom to spare if possible.

use std::sync::Arc;

use supercargo_framework::PodInfo;
use supercargo_framework::objects::{PodDisruptionBudget, Typed};

/// The budgets that protect anything.
pub(super) struct Budgets<'a>(Vec<Typed<'a, PodDisruptionBudget>>);

/// Pods in two groups, each in the order they came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Those whose removal would go against a budget.
    pub(super) violating: Vec<Arc<PodInfo>>,
    /// All others.
    pub(super) others: Vec<Arc<PodInfo>>,
}

impl<'a> Budgets<'a> {
    /// Of these budgets. One without a selector, or with an empty one, protects nothing.
    pub(super) fn new(all: impl Iterator<Item = Typed<'a, PodDisruptionBudget>>) -> Self {
        let protects = |budget: &Typed<'_, PodDisruptionBudget>| {
            budget.selector.as_ref().is_some_and(|selector| !selector.is_empty())
        };
        Self(all.filter(protects).collect())
    }

    /// Tells the pods apart, if all of them go in this order: each uses up what its budgets still allow.
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

/// Whether the budget counts the pod. One that the API server has begun to disrupt has been counted already, and one
/// without labels is nobody's, whatever the selector says of what is absent.
fn protects(budget: &Typed<'_, PodDisruptionBudget>, pod: &PodInfo) -> bool {
    pod.labels.iter().next().is_some()
        && budget.object.namespace() == &*pod.namespace
        && budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
        && !budget.disrupted_pods.contains(&pod.name)
}
