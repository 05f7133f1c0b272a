//! Terms of the incoming pod with their resolved namespaces.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::{Namespace, Object, resources};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm};
use supercargo_framework::{Context, Labels, PodInfo};

/// The namespaces of a term of the incoming pod.
#[derive(Clone, Debug)]
pub(super) enum Namespaces {
    /// All.
    All,
    /// The namespaces that the term lists.
    Named,
    /// The namespaces that the term lists, and these.
    NamedAnd(Vec<Arc<str>>),
}

impl Namespaces {
    /// Resolves a term's namespaces.
    ///
    /// Same as upstream, including its quirk: the selector is also matched against empty labels, so
    /// a selector that matches a namespace without labels (`NotIn`, `DoesNotExist`) selects every
    /// namespace.
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

    /// Whether the term of a pod in namespace `owner`, with these namespaces, matches `other`.
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

/// A pod's inter-pod affinity, if it has any.
pub(super) fn affinity_of(pod: &PodInfo) -> Option<&PodAffinity> {
    pod.spec.pod_affinity.as_deref()
}

/// The pod's namespace object, if it exists.
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
