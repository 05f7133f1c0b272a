//! Inter-pod affinity as the API has it, selectors parsed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::selector::LabelSelector;

/// Which pods a term speaks of, and how near.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodAffinityTerm {
    /// `labelSelector`, with what the API server has merged into it; `None` selects no pod.
    pub selector: Option<LabelSelector>,
    /// `topologyKey`.
    pub topology_key: Arc<str>,
    /// `namespaces`, sorted. With no `namespace_selector` either, the namespace of the pod that has the term.
    pub namespaces: Box<[Arc<str>]>,
    /// `namespaceSelector`; an empty one selects every namespace.
    pub namespace_selector: Option<LabelSelector>,
}

/// A preference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightedPodAffinityTerm {
    /// From 1 to 100.
    pub weight: i32,
    /// What is preferred.
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
    /// Why a term cannot be evaluated; such a pod is turned down. `None` when all can.
    pub invalid: Option<Arc<str>>,
}
