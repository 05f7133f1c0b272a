//! PodDisruptionBudgets, which preemption respects if possible.

use std::collections::BTreeMap;

use supercargo_framework::PodInfo;
use supercargo_framework::objects::{PodDisruptionBudget, Typed};

use super::victim::{PodOnNode, Victim};

/// The budgets that protect pods, by namespace.
pub(super) struct Budgets<'a>(BTreeMap<&'a str, Vec<Typed<'a, PodDisruptionBudget>>>);

impl<'a> Budgets<'a> {
    /// Collects the budgets. A budget with an absent or empty selector protects nothing.
    pub(super) fn new(all: impl Iterator<Item = Typed<'a, PodDisruptionBudget>>) -> Self {
        let protects = |budget: &Typed<'_, PodDisruptionBudget>| {
            budget.selector.as_ref().is_some_and(|selector| !selector.is_empty())
        };
        let mut by_namespace: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for budget in all.filter(protects) {
            by_namespace.entry(budget.object.namespace()).or_default().push(budget);
        }
        Self(by_namespace)
    }

    /// Puts victims whose eviction violates budgets before all others, each with the number of its
    /// pods for which it does. They are evicted in the given order: each pod consumes what its
    /// budgets still allow, up to the first that allows no more. As upstream, the budgets after it
    /// stay as they are.
    pub(super) fn violated_first(&self, potential: Vec<Victim>) -> Vec<(Victim, usize)> {
        let mut allowed: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        let mut violates = |PodOnNode { pod, .. }: &&PodOnNode| {
            let Some((namespace, budgets)) = self.0.get_key_value(&*pod.namespace) else { return false };
            let start = || budgets.iter().map(|budget| budget.disruptions_allowed).collect();
            let allowed = allowed.entry(*namespace).or_insert_with(start);
            let mut matching = budgets.iter().zip(allowed).filter(|(budget, _)| protects(budget, pod));
            matching.any(|(_, allowed)| {
                *allowed = allowed.saturating_sub(1);
                *allowed < 0
            })
        };
        let counted = potential.into_iter().map(|victim| {
            let violations = victim.pods().filter(&mut violates).count();
            (victim, violations)
        });
        let (mut all, mut others): (Vec<_>, Vec<_>) = counted.partition(|(_, violations)| *violations > 0);
        all.append(&mut others);
        all
    }
}

/// Whether the budget counts the pod. Pods that the API server is already disrupting are not
/// counted again.
fn protects(budget: &Typed<'_, PodDisruptionBudget>, pod: &PodInfo) -> bool {
    budget.selects(pod) && budget.disrupted_pods.binary_search(&pod.name).is_err()
}
