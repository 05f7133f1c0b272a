//! Inter-pod affinity, with parsed selectors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::indexed::Indexed;
use crate::labels::Labels;
use crate::selector::LabelSelector;

/// An affinity term: the pods that it selects, and a topology key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// `labelSelector`, with the `matchLabelKeys` that the API server merges into it; `None`
    /// selects no pod.
    pub selector: Option<LabelSelector>,
    /// `topologyKey`.
    pub topology_key: Arc<str>,
    /// `namespaces`, sorted. If empty and without `namespace_selector`: the namespace of the pod
    /// with the term.
    pub namespaces: Indexed<Arc<str>>,
    /// `namespaceSelector`; an empty one selects every namespace.
    pub namespace_selector: Option<LabelSelector>,
}

impl PodAffinityTerm {
    /// Whether the term of a pod in namespace `owner` matches pods with these labels in
    /// `namespace`.
    ///
    /// `namespace_labels` are the labels of that namespace. Upstream evaluates a namespace selector
    /// against empty labels in several places; callers at those places pass empty labels.
    pub fn matches(&self, owner: &str, namespace: &str, labels: &Labels, namespace_labels: &Labels) -> bool {
        (self.names(owner, namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels)))
            && self.selects(labels)
    }

    /// Whether the term of a pod in namespace `owner` covers a namespace by name, or by default.
    pub fn names(&self, owner: &str, namespace: &str) -> bool {
        if self.namespaces.is_empty() && self.namespace_selector.is_none() {
            return owner == namespace;
        }
        self.namespaces.has(namespace)
    }

    /// Whether the term selects pods with these labels, in any namespace.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// A preference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightedPodAffinityTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: PodAffinityTerm,
}

/// `affinity.podAffinity` and `affinity.podAntiAffinity` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodAffinity {
    /// `podAffinity.requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_affinity: Box<[PodAffinityTerm]>,
    /// `podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution`.
    pub required_anti_affinity: Box<[PodAffinityTerm]>,
    /// `podAffinity.preferredDuringSchedulingIgnoredDuringExecution`.
    pub preferred_affinity: Box<[WeightedPodAffinityTerm]>,
    /// `podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution`.
    pub preferred_anti_affinity: Box<[WeightedPodAffinityTerm]>,
    /// The error of a term that cannot be evaluated, if any. Such a pod is rejected.
    pub invalid: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::RawRequirement;

    #[test]
    fn terms_default_to_the_namespace_of_their_pod() {
        let everything = || Some(LabelSelector::default());
        let selector = |operator: &str, values: &[&str]| {
            let values = values.iter().map(|value| Arc::from(*value)).collect();
            let raw = RawRequirement { key: "team".into(), operator: operator.into(), values };
            LabelSelector::parse(&Labels::default(), [raw]).unwrap()
        };
        let term = |namespaces: &[&str], namespace_selector| PodAffinityTerm {
            selector: everything(),
            topology_key: "zone".into(),
            namespaces: namespaces.iter().map(|name| Arc::from(*name)).collect(),
            namespace_selector,
        };
        let blue: Labels = [("team", "blue")].into_iter().collect();
        let cases = [
            ("its own", term(&[], None), "default", true),
            ("another", term(&[], None), "other", false),
            ("a named one", term(&["other"], None), "other", true),
            ("its own, which it does not name", term(&["other"], None), "default", false),
            ("any", term(&[], everything()), "other", true),
            ("one with the label", term(&[], Some(selector("In", &["blue"]))), "other", true),
            ("one without the label", term(&[], Some(selector("NotIn", &["blue"]))), "other", false),
            (
                "its own, which it does not select",
                term(&[], Some(selector("NotIn", &["blue"]))),
                "default",
                false,
            ),
            ("selected or named", term(&["other"], Some(selector("DoesNotExist", &[]))), "other", true),
        ];
        for (name, term, namespace, expected) in cases {
            let matches = term.matches("default", namespace, &Labels::default(), &blue);
            assert_eq!(matches, expected, "{name}");
        }
        let none = PodAffinityTerm { selector: None, ..term(&[], everything()) };
        let matches = none.matches("default", "default", &Labels::default(), &blue);
        assert!(!matches, "a nil selector selects no pod");
    }
}
