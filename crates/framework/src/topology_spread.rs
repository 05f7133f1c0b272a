//! Topology spread constraints, with parsed selectors.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::selector::LabelSelector;

/// One constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TopologySpreadConstraint {
    /// `maxSkew`.
    pub max_skew: i32,
    /// `topologyKey`.
    pub topology_key: Arc<str>,
    /// Whether `whenUnsatisfiable` is `DoNotSchedule`; otherwise it is a preference.
    pub hard: bool,
    /// `labelSelector`; `None` selects no pod.
    pub selector: Option<LabelSelector>,
    /// `minDomains`.
    pub min_domains: Option<i32>,
    /// Whether nodes that the pod's node affinity rejects are excluded (`nodeAffinityPolicy:
    /// Honor`, the default).
    pub honors_affinity: bool,
    /// Whether nodes with untolerated taints are excluded (`nodeTaintsPolicy: Honor`).
    pub honors_taints: bool,
    /// `matchLabelKeys`.
    pub match_label_keys: Box<[Arc<str>]>,
}
