//! The effective constraints of a pod.

use std::sync::Arc;

use supercargo_framework::affinity::Requirement;
use supercargo_framework::taint::first_untolerated;
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{LabelSelector, Labels, NodeRecord, PodInfo, SmallMap};

use super::PodTopologySpread;
use super::default_selector::{Lookup, Selectors, default_selectors};

/// A constraint of one pod. It contains everything that it is derived from, so its hash can be
/// signed.
#[derive(Hash)]
pub(super) struct Constraint {
    pub(super) max_skew: i32,
    pub(super) topology_key: Arc<str>,
    pub(super) min_domains: i32,
    /// Whether the constraint selects the pod itself.
    pub(super) selects_self: bool,
    honors_affinity: bool,
    honors_taints: bool,
    /// `None` selects no pod.
    selectors: Option<Selectors>,
}

impl Constraint {
    fn new(spec: &TopologySpreadConstraint, selectors: Option<Selectors>, selects_self: bool) -> Self {
        Self {
            max_skew: spec.max_skew,
            topology_key: Arc::clone(&spec.topology_key),
            min_domains: spec.min_domains.unwrap_or(1),
            selects_self,
            honors_affinity: spec.honors_affinity,
            honors_taints: spec.honors_taints,
            selectors,
        }
    }

    /// Whether the constraint counts the same pods of a node as the other.
    pub(super) fn counts_as(&self, other: &Self) -> bool {
        let both = self.selectors.as_ref().zip(other.selectors.as_ref());
        both.is_some_and(|(own, others)| own.are_clones_of(others))
    }

    /// Whether the constraint selects pods with these labels.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.selectors.as_ref().is_some_and(|selectors| selectors.match_labels(labels))
    }

    /// Whether nodes that the pod's node affinity rejects are excluded.
    pub(super) fn honors_affinity(&self) -> bool {
        self.honors_affinity
    }

    /// Whether nodes with untolerated taints are excluded.
    pub(super) fn honors_taints(&self) -> bool {
        self.honors_taints
    }

    /// Whether a pod on a node counts: it is in the namespace and not terminating. Same as
    /// upstream, including its quirk: an empty selector, which matches every pod, counts none.
    pub(super) fn counts(&self, pod: &PodInfo, namespace: &str) -> bool {
        self.selectors.as_ref().is_some_and(|selectors| {
            !selectors.are_empty()
                && !pod.terminating
                && *pod.namespace == *namespace
                && selectors.match_labels(&pod.labels)
        })
    }

    /// The number of these pods that count.
    pub(super) fn count(&self, pods: &[Arc<PodInfo>], namespace: &str) -> i64 {
        if self.selectors.as_ref().is_none_or(Selectors::are_empty) {
            return 0;
        }
        pods.iter().filter(|pod| self.counts(pod, namespace)).count() as i64
    }
}

/// Whether the labels have every constraint's topology key.
pub(super) fn has_every_key(labels: &Labels, constraints: &[Constraint]) -> bool {
    constraints.iter().all(|constraint| labels.get(&constraint.topology_key).is_some())
}

/// The distinct topology keys of the constraints.
pub(super) fn keys(constraints: &[Constraint]) -> SmallMap<Arc<str>, ()> {
    constraints.iter().map(|constraint| (Arc::clone(&constraint.topology_key), ())).collect()
}

/// Whether a node counts for the pod's constraints. Checks that several constraints share are
/// cached.
pub(super) struct Inclusion<'a> {
    pod: &'a PodInfo,
    node: &'a NodeRecord,
    admitted: Option<bool>,
    tolerated: Option<bool>,
}

impl<'a> Inclusion<'a> {
    pub(super) fn new(pod: &'a PodInfo, node: &'a NodeRecord) -> Self {
        Self { pod, node, admitted: None, tolerated: None }
    }

    /// Whether the node counts for this constraint (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
    pub(super) fn counts_for(&mut self, constraint: &Constraint) -> bool {
        let (pod, node) = (self.pod, self.node);
        (!constraint.honors_affinity || *self.admitted.get_or_insert_with(|| pod.spec.admits_node(node)))
            && (!constraint.honors_taints
                || *self
                    .tolerated
                    .get_or_insert_with(|| first_untolerated(&node.taints, &pod.spec.tolerations).is_none()))
    }
}

impl PodTopologySpread {
    /// The pod's hard or soft constraints: its own if it has any of either kind, otherwise the
    /// defaults.
    pub(super) fn constraints(&self, lookup: &dyn Lookup, pod: &PodInfo, hard: bool) -> Vec<Constraint> {
        self.constraints_where(lookup, pod, |spec| spec.hard == hard)
    }

    /// Whether the pod has hard or soft [`constraints`](Self::constraints).
    pub(super) fn has_constraints(&self, lookup: &dyn Lookup, pod: &PodInfo, hard: bool) -> bool {
        let own = &pod.spec.topology_spread;
        if own.is_empty() {
            return !self.constraints(lookup, pod, hard).is_empty();
        }
        own.iter().any(|spec| spec.hard == hard)
    }

    /// All of the pod's constraints: hard and soft.
    pub(super) fn all_constraints(&self, lookup: &dyn Lookup, pod: &PodInfo) -> [Vec<Constraint>; 2] {
        let own = &pod.spec.topology_spread;
        let specs = if own.is_empty() { &self.defaults } else { own };
        let all = self.constraints_where(lookup, pod, |_| true);
        let mut sorts = [Vec::new(), Vec::new()];
        for (spec, constraint) in specs.iter().zip(all) {
            sorts[usize::from(!spec.hard)].push(constraint);
        }
        sorts
    }

    fn constraints_where(
        &self,
        lookup: &dyn Lookup,
        pod: &PodInfo,
        wanted: impl Fn(&TopologySpreadConstraint) -> bool,
    ) -> Vec<Constraint> {
        let own = &pod.spec.topology_spread;
        if !own.is_empty() {
            let constraint = |spec| {
                let selector = self.selector(spec, pod);
                let selects_self = selector.as_ref().is_some_and(|it| it.matches(&pod.labels));
                Constraint::new(spec, selector.map(Into::into), selects_self)
            };
            return own.iter().filter(|spec| wanted(spec)).map(constraint).collect();
        }
        let mut defaults = self.defaults.iter().filter(|spec| wanted(spec)).peekable();
        if defaults.peek().is_none() {
            return Vec::new();
        }
        let selectors = default_selectors(lookup, pod);
        if selectors.are_empty() {
            return Vec::new();
        }
        let selects_self = selectors.match_labels(&pod.labels);
        defaults.map(|spec| Constraint::new(spec, Some(selectors.clone()), selects_self)).collect()
    }

    /// A constraint's selector with the requirements of `matchLabelKeys`: the pod's values of the
    /// keys that it has.
    fn selector(&self, spec: &TopologySpreadConstraint, pod: &PodInfo) -> Option<LabelSelector> {
        let selector = spec.selector.as_ref()?;
        let keys: &[_] = if self.match_label_keys { &spec.match_label_keys } else { &[] };
        let same = keys.iter().filter_map(|key| Some(Requirement::equals(key, pod.labels.get(key)?)));
        let mut same = same.peekable();
        if same.peek().is_none() {
            return Some(selector.clone());
        }
        let requirements: Vec<_> = same.chain(selector.requirements().iter().cloned()).collect();
        Some(LabelSelector::new(requirements))
    }
}
