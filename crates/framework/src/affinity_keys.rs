//! Label keys that inter-pod affinity terms refer to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::pod::PodInfo;
use crate::pod_affinity::PodAffinity;

/// The label keys in affinity terms of pods on nodes. Labels with other keys cannot change whether
/// those terms match a pod, so signatures omit them.
///
/// Keys are only added. Once many of them are unused, unused keys are removed and a new epoch
/// begins. Compare the epoch along with labels restricted to these keys: only within one epoch do
/// equal restrictions mean that no term distinguishes two pods.
#[derive(Clone, Debug, Default)]
pub struct AffinityKeys {
    /// Anyone who creates pods chooses them, so they are ordered and not hashed.
    keys: BTreeSet<Arc<str>>,
    epoch: u64,
    /// Pods with affinity removed since the last sweep.
    gone: usize,
    /// The number of removed pods that triggers the next sweep.
    sweep_at: usize,
}

/// The minimum number of removed pods with affinity before a sweep.
const FIRST_SWEEP: usize = 1024;

impl AffinityKeys {
    /// Whether a term of a pod on a node refers to the key, or has done so in this epoch.
    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Increases when keys are removed.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Adds the keys of pods that were added to a node.
    pub(crate) fn learn<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<PodInfo>>) {
        visit(pods, |key| {
            if !self.keys.contains(key) {
                self.keys.insert(Arc::clone(key));
            }
        });
    }

    /// Counts removed pods with affinity. Returns whether a [`sweep`](Self::sweep) is due.
    pub(crate) fn note_gone(&mut self, pods: usize) -> bool {
        self.gone += pods;
        self.gone >= self.sweep_at.max(FIRST_SWEEP)
    }

    /// Removes the keys that none of these pods, which must be all pods, refers to; but only if
    /// most keys are unused, as users of the keys must start over.
    pub(crate) fn sweep<'a>(&mut self, pods: impl IntoIterator<Item = &'a Arc<PodInfo>>) {
        let (mut live, mut count) = (BTreeSet::new(), 0);
        let counted = pods.into_iter().inspect(|_| count += 1);
        visit(counted, |key| {
            if !live.contains(key) {
                live.insert(Arc::clone(key));
            }
        });
        (self.gone, self.sweep_at) = (0, 2 * count);
        if 2 * live.len() < self.keys.len() {
            self.keys = live;
            self.epoch += 1;
        }
    }
}

/// Visits the keys in the pods' terms. Pods of one template are usually adjacent and share a spec.
fn visit<'a>(pods: impl IntoIterator<Item = &'a Arc<PodInfo>>, mut visit: impl FnMut(&Arc<str>)) {
    let mut last = None;
    for pod in pods {
        let again = last.is_some_and(|spec| Arc::ptr_eq(spec, &pod.spec));
        last = Some(&pod.spec);
        if let Some(affinity) = pod.spec.pod_affinity.as_deref().filter(|_| !again) {
            affinity.label_keys().for_each(&mut visit);
        }
    }
}

impl PodAffinity {
    /// The label keys in the terms' selectors, with repetitions.
    pub fn label_keys(&self) -> impl Iterator<Item = &Arc<str>> {
        let required = self.required_affinity.iter().chain(&self.required_anti_affinity);
        let preferred = self.preferred_affinity.iter().chain(&self.preferred_anti_affinity);
        let terms = required.chain(preferred.map(|weighted| &weighted.term));
        let selectors = terms.filter_map(|term| term.selector.as_ref());
        selectors.flat_map(|selector| selector.requirements().iter().map(|requirement| &requirement.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{Operator, Requirement};
    use crate::node_info::NodeInfo;
    use crate::nodes::Nodes;
    use crate::pod_affinity::{PodAffinityTerm, WeightedPodAffinityTerm};
    use crate::selector::LabelSelector;
    use crate::testing::{node, pod};

    /// A pod with one term of a kind, on one key.
    fn naming(name: &str, key: &str, sort: usize) -> Arc<PodInfo> {
        let requirement = Requirement { key: key.into(), operator: Operator::Exists, values: [].into() };
        let selector = Some(LabelSelector::new([requirement]));
        let term = PodAffinityTerm { selector, ..PodAffinityTerm::default() };
        let weighted = || [WeightedPodAffinityTerm { weight: 1, term: term.clone() }].into();
        let mut affinity = PodAffinity::default();
        match sort {
            0 => affinity.required_affinity = [term].into(),
            1 => affinity.required_anti_affinity = [term].into(),
            2 => affinity.preferred_affinity = weighted(),
            _ => affinity.preferred_anti_affinity = weighted(),
        }
        Arc::new(pod(name).with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity))).build())
    }

    #[test]
    fn keys_of_every_kind_of_term_are_added() {
        let mut nodes = Nodes::default();
        let mut ghost = NodeInfo::new(Arc::new(node("a").build()));
        ghost.add_pod(naming("p0", "k0", 0));
        let a = nodes.insert(ghost);
        nodes.update(a, |info| info.add_pod(naming("p1", "k1", 1)));
        // One pod is removed and others are added in one update, in either order.
        nodes.update(a, |info| {
            info.remove_pod(&"p1".into());
            info.add_pod(naming("p2", "k2", 2));
        });
        nodes.update(a, |info| {
            info.add_pod(naming("p3", "k3", 3));
            info.remove_pod(&"p0".into());
        });
        for key in ["k0", "k1", "k2", "k3"] {
            assert!(nodes.affinity_keys().contains(key), "{key}");
        }
        assert!(!nodes.affinity_keys().contains("k4"));
        assert_eq!(nodes.affinity_keys().epoch(), 0);
    }

    #[test]
    fn unused_keys_are_removed_once_most_are_unused() {
        let mut nodes = Nodes::default();
        let a = nodes.insert(NodeInfo::new(Arc::new(node("a").build())));
        nodes.update(a, |info| info.add_pod(naming("stays", "stays", 0)));
        let pass_through = |nodes: &mut Nodes, name: &str, key: &str| {
            nodes.update(a, |info| info.add_pod(naming(name, key, 0)));
            nodes.update(a, |info| info.remove_pod(&name.into()));
        };
        // A single unused key is kept: removing it is not worth a new epoch.
        for i in 0..3 * FIRST_SWEEP {
            pass_through(&mut nodes, &format!("{i}"), "one");
        }
        assert_eq!((nodes.affinity_keys().epoch(), nodes.affinity_keys().contains("one")), (0, true));
        for i in 0..FIRST_SWEEP {
            pass_through(&mut nodes, &format!("{i}"), &format!("k{i}"));
        }
        let keys = nodes.affinity_keys();
        assert_eq!((keys.epoch(), keys.contains("k5"), keys.contains("stays")), (1, false, true));
    }

    #[test]
    fn pods_removed_with_their_node_count_for_the_sweep() {
        let mut nodes = Nodes::default();
        for i in 0..FIRST_SWEEP {
            let mut info = NodeInfo::new(Arc::new(node("a").build()));
            info.add_pod(naming("p", &format!("k{i}"), 0));
            let a = nodes.insert(info);
            nodes.remove(a);
        }
        assert_eq!((nodes.affinity_keys().epoch(), nodes.affinity_keys().contains("k5")), (1, false));
    }
}
