//! The terms of the pod to be scheduled, their namespaces looked up.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{Namespace, Object, resources};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::{Context, Labels, PodInfo};

/// The namespaces that a term of the pod to be scheduled speaks of.
#[derive(Clone, Debug)]
pub(super) enum Namespaces {
    /// All.
    All,
    /// Those that the term names.
    Named,
    /// Those that the term names, and these.
    NamedAnd(Vec<Arc<str>>),
}

impl Namespaces {
    /// Looks a term's namespaces up.
    ///
    /// Same as upstream's, with its quirk: once looked up, the selector is matched with the labels of no namespace at all
    /// as well, so one that a namespace without labels meets (`NotIn`, `DoesNotExist`) selects every namespace.
    pub(super) fn of(cx: &Context<'_>, term: &PodAffinityTerm) -> Self {
        let Some(selector) = &term.namespace_selector else {
            return Self::Named;
        };
        if selector.matches(&Labels::default()) {
            return Self::All;
        }
        let selected = cx
            .list::<Namespace>(&resources::NAMESPACE)
            .filter(|namespace| selector.matches(&namespace.object.labels))
            .map(|namespace| Arc::clone(&namespace.object.key));
        Self::NamedAnd(selected.collect())
    }

    /// Whether the term of a pod in namespace `owner`, with these namespaces, speaks of pods like `other`.
    pub(super) fn matches(&self, term: &PodAffinityTerm, owner: &str, other: &PodInfo) -> bool {
        let reaches = match self {
            Self::All => true,
            Self::Named => term.names(owner, &other.namespace),
            Self::NamedAnd(selected) => {
                selected.contains(&other.namespace) || term.names(owner, &other.namespace)
            }
        };
        reaches && term.selects(&other.labels)
    }
}

/// A pod's affinity to other pods, if it has any.
pub(super) fn affinity_of(pod: &PodInfo) -> Option<&PodAffinity> {
    pod.spec.pod_affinity.as_deref()
}

/// The object of a pod's namespace, if it is known.
pub(super) fn namespace_of(cx: &Context<'_>, pod: &PodInfo) -> Option<Arc<Object>> {
    cx.object(&resources::NAMESPACE, &pod.namespace).cloned()
}

/// Each key once.
pub(super) fn distinct<'a>(keys: impl Iterator<Item = &'a Arc<str>>) -> SmallVec<[Arc<str>; 2]> {
    let mut distinct = SmallVec::new();
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(Arc::clone(key));
        }
    }
    distinct
}
