//! Preferences: the pod's own, and those of pods that are there already.

use std::sync::Arc;

use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};
use supercargo_framework::pod_affinity::{PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::{Context, CycleState, Labels, NodeIndex, NodeInfo, PodInfo, Status};

use super::InterPodAffinity;
use super::terms::{Namespaces, affinity_of, namespace_of};
use crate::domain_counts::{self, ByDomain};

/// What PreScore prepares: the sum of weights by topology key and domain, shared with trials.
#[derive(Clone)]
struct Prepared(Arc<[(Arc<str>, ByDomain)]>);

/// Preferences of the pod, with their namespaces; the weight is negative for what the pod wants away.
type Preferences<'a> = Vec<(i64, &'a PodAffinityTerm, Namespaces)>;

/// Sums up what every pod that is there means for a pod.
struct Sums<'a> {
    pod: &'a PodInfo,
    preferences: Preferences<'a>,
    /// What a required affinity term of a pod that is there weighs.
    hard_weight: i64,
    /// The namespace of the pod, by which terms of others select it.
    namespace: Option<Arc<Object>>,
    none: Labels,
    by_key: Vec<(Arc<str>, ByDomain)>,
}

fn preferences<'a>(cx: &Context<'_>, pod: &'a PodInfo) -> Preferences<'a> {
    let Some(own) = affinity_of(pod) else {
        return Vec::new();
    };
    let look_up = |sign: i64, terms: &'a [WeightedPodAffinityTerm]| {
        let weigh = move |weighted: &'a WeightedPodAffinityTerm| {
            let namespaces = Namespaces::of(cx, &weighted.term);
            (sign * i64::from(weighted.weight), &weighted.term, namespaces)
        };
        terms.iter().map(weigh)
    };
    look_up(1, &own.preferred_affinity).chain(look_up(-1, &own.preferred_anti_affinity)).collect()
}

impl Sums<'_> {
    /// Adds what a pod on a node means.
    fn add_pod(&mut self, other: &PodInfo, node: &NodeInfo) {
        for (weight, term, namespaces) in &self.preferences {
            if namespaces.matches(term, &self.pod.namespace, other) {
                add(&mut self.by_key, term, *weight, node);
            }
        }
        let Some(theirs) = affinity_of(other) else {
            return;
        };
        if self.hard_weight > 0 {
            for term in &theirs.required_affinity {
                self.add_theirs(other, term, self.hard_weight, node);
            }
        }
        for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_affinity {
            self.add_theirs(other, term, i64::from(*weight), node);
        }
        for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_anti_affinity {
            self.add_theirs(other, term, -i64::from(*weight), node);
        }
    }

    /// Adds a term of another pod, if it speaks of this one.
    fn add_theirs(&mut self, other: &PodInfo, term: &PodAffinityTerm, weight: i64, node: &NodeInfo) {
        let labels = self.namespace.as_ref().map_or(&self.none, |namespace| &namespace.labels);
        if term.matches(&other.namespace, self.pod, labels) {
            add(&mut self.by_key, term, weight, node);
        }
    }
}

/// Adds a weight to the node's domain, if it has one.
fn add(by_key: &mut Vec<(Arc<str>, ByDomain)>, term: &PodAffinityTerm, weight: i64, node: &NodeInfo) {
    let Some(domain) = node.node().labels.get(&term.topology_key) else {
        return;
    };
    match by_key.iter_mut().find(|(key, _)| *key == term.topology_key) {
        Some((_, sums)) => domain_counts::add(sums, domain, weight),
        None => {
            let sums = ByDomain::from_iter([(Arc::clone(domain), weight)]);
            by_key.push((Arc::clone(&term.topology_key), sums));
        }
    }
}

impl PreScorePlugin for InterPodAffinity {
    fn pre_score(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        if let Some(reason) = affinity_of(pod).and_then(|affinity| affinity.invalid.as_ref()) {
            return Status::error(format!("failed to parse pod: {reason}"));
        }
        let preferences = preferences(cx, pod);
        let has_preferences = !preferences.is_empty();
        if self.ignores_preferences_of_others && !has_preferences {
            return Status::skip();
        }
        let mut sums = Sums {
            pod,
            preferences,
            hard_weight: i64::from(self.hard_pod_affinity_weight),
            namespace: namespace_of(cx, pod),
            none: Labels::default(),
            by_key: Vec::new(),
        };
        let nodes = cx.nodes();
        if has_preferences {
            for (_, node) in nodes.iter() {
                node.pods().iter().for_each(|other| sums.add_pod(other, node));
            }
        } else {
            for node in nodes.with_affinity() {
                node.pods_with_affinity().iter().for_each(|other| sums.add_pod(other, node));
            }
        }
        if sums.by_key.is_empty() {
            return Status::skip();
        }
        state.write(Prepared(sums.by_key.into()));
        Status::success()
    }
}

impl ScorePlugin for InterPodAffinity {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        _: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        let not_prepared = "failed to read \"PreScoreInterPodAffinity\" from cycleState: not found";
        let Prepared(by_key) = state.read().ok_or_else(|| Status::error(not_prepared))?;
        let labels = &node.node().labels;
        let sums = by_key.iter().filter_map(|(key, sums)| sums.get(labels.get(key)?));
        Ok(sums.sum())
    }

    fn normalization(&self) -> Normalize {
        Normalize::Custom
    }

    /// Spreads the scores over the whole range; raw ones may be negative.
    fn normalize(&self, _: &CycleState, _: &PodInfo, scores: &mut [i64]) -> Status {
        let least = scores.iter().copied().min().unwrap_or(0);
        let most = scores.iter().copied().max().unwrap_or(0);
        let range = (most - least) as f64;
        for score in scores {
            *score = match most - least {
                0 => 0,
                _ => (MAX_NODE_SCORE as f64 * ((*score - least) as f64 / range)) as i64,
            };
        }
        Status::success()
    }
}
