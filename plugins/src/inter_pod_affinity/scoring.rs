//! Preferred terms: the pod's own, and those of existing pods.

use std::sync::Arc;

use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};
use supercargo_framework::pod_affinity::{PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::{Context, CycleState, Labels, NodeIndex, NodeInfo, PodInfo, PodSpec, Status};

use super::InterPodAffinity;
use super::terms::{Namespaces, affinity_of, distinct, namespace_of};
use crate::HOSTNAME;
use crate::applied::{in_domain, widen};
use crate::domain_counts::{self, ByDomain};

/// The pod's preferences and properties, prepared for matching.
struct Preferences {
    spec: Arc<PodSpec>,
    /// By preferred affinity term.
    near: Vec<Namespaces>,
    /// By preferred anti-affinity term.
    away: Vec<Namespaces>,
    /// The weight of required affinity terms of existing pods.
    hard_weight: i64,
    /// The pod's namespace object, which terms of other pods select.
    namespace: Option<Arc<Object>>,
}

/// The weights of the domains of a topology key.
#[derive(Clone, Default)]
struct Weighed {
    /// The sum by domain.
    sums: ByDomain,
    /// The number of weights added.
    summands: i64,
}

/// The state that PreScore prepares: sums of weights by topology key and domain. A key is present
/// once a counted term uses it, even if no node with a matching pod has the label.
#[derive(Clone)]
struct Sums {
    preferences: Arc<Preferences>,
    by_key: Vec<(Arc<str>, Weighed)>,
}

/// [`Sums`], shared with dry runs, which do not change them.
#[derive(Clone)]
pub(super) struct Prepared(Arc<Sums>);

impl Preferences {
    fn new(cx: &Context<'_>, pod: &PodInfo, hard_weight: i64) -> Self {
        let look_up = |terms: &[WeightedPodAffinityTerm]| {
            terms.iter().map(|weighted| Namespaces::of(cx, &weighted.term)).collect()
        };
        let own = affinity_of(pod);
        Self {
            spec: Arc::clone(&pod.spec),
            near: own.map(|own| look_up(&own.preferred_affinity)).unwrap_or_default(),
            away: own.map(|own| look_up(&own.preferred_anti_affinity)).unwrap_or_default(),
            hard_weight,
            namespace: namespace_of(cx, pod),
        }
    }

    fn are_empty(&self) -> bool {
        self.near.is_empty() && self.away.is_empty()
    }

    /// Visits the terms between another pod and this one, with their weights.
    fn visit(&self, pod: &PodInfo, other: &PodInfo, mut visit: impl FnMut(&PodAffinityTerm, i64)) {
        if let Some(own) = self.spec.pod_affinity.as_deref() {
            let sorts =
                [(1, &own.preferred_affinity, &self.near), (-1, &own.preferred_anti_affinity, &self.away)];
            for (sign, terms, namespaces) in sorts {
                for (WeightedPodAffinityTerm { weight, term }, namespaces) in terms.iter().zip(namespaces) {
                    if namespaces.matches(term, &pod.namespace, other) {
                        visit(term, sign * i64::from(*weight));
                    }
                }
            }
        }
        let Some(theirs) = affinity_of(other) else {
            return;
        };
        let none = Labels::default();
        let labels = self.namespace.as_ref().map_or(&none, |namespace| &namespace.labels);
        let mut visit = |term: &PodAffinityTerm, weight| {
            if term.matches(&other.namespace, &pod.namespace, &pod.labels, labels) {
                visit(term, weight);
            }
        };
        if self.hard_weight > 0 {
            theirs.required_affinity.iter().for_each(|term| visit(term, self.hard_weight));
        }
        for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_affinity {
            visit(term, i64::from(*weight));
        }
        for WeightedPodAffinityTerm { weight, term } in &theirs.preferred_anti_affinity {
            visit(term, -i64::from(*weight));
        }
    }
}

impl Sums {
    fn new(preferences: Preferences) -> Self {
        let mut sums = Self { preferences: Arc::new(preferences), by_key: Vec::new() };
        let preferences = Arc::clone(&sums.preferences);
        if let Some(own) = preferences.spec.pod_affinity.as_deref() {
            for weighted in own.preferred_affinity.iter().chain(&own.preferred_anti_affinity) {
                sums.of_key(&weighted.term.topology_key);
            }
        }
        sums
    }

    /// Whether no weight has been added: then all nodes score equally.
    fn are_idle(&self) -> bool {
        self.by_key.iter().all(|(_, weighed)| weighed.summands == 0)
    }

    fn of_key(&mut self, key: &Arc<str>) -> &mut Weighed {
        let position = self.by_key.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.by_key.push((Arc::clone(key), Weighed::default()));
            self.by_key.len() - 1
        });
        &mut self.by_key[position].1
    }

    /// Adds or subtracts the weights of another pod on a node with these labels.
    fn add(&mut self, pod: &PodInfo, other: &PodInfo, labels: &Labels, sign: i64) {
        let preferences = Arc::clone(&self.preferences);
        preferences.visit(pod, other, |term, weight| {
            let weighed = self.of_key(&term.topology_key);
            if let Some(domain) = labels.get(&term.topology_key) {
                domain_counts::add(&mut weighed.sums, domain, sign * weight);
                weighed.summands += sign;
            }
        });
    }

    /// The sum in a domain.
    fn get(&self, place: usize, labels: &Labels) -> i64 {
        let (key, weighed) = &self.by_key[place];
        labels.get(key).and_then(|domain| weighed.sums.get(domain)).copied().unwrap_or(0)
    }
}

impl Prepared {
    /// Adds or removes a pod of a node.
    pub(super) fn follow_pod(
        &mut self,
        pod: &PodInfo,
        changed: &PodInfo,
        labels: &Labels,
        sign: i64,
    ) -> Applied {
        let mut concerns = false;
        self.0.preferences.visit(pod, changed, |_, _| concerns = true);
        if !concerns {
            return Applied::Here;
        }
        let sums = Arc::make_mut(&mut self.0);
        let before: Vec<_> = (0..sums.by_key.len()).map(|place| sums.get(place, labels)).collect();
        let was_idle = sums.are_idle();
        sums.add(pod, changed, labels, sign);
        if sums.are_idle() != was_idle || sums.by_key.len() != before.len() {
            return Applied::Rebuild;
        }
        let mut applied = Applied::Here;
        for (place, before) in before.into_iter().enumerate() {
            if sums.get(place, labels) != before {
                widen(&mut applied, in_domain(&sums.by_key[place].0));
            }
        }
        applied
    }

    /// The topology keys of all relevant terms.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.by_key.iter().map(|(key, _)| key)
    }
}

impl PreScorePlugin for InterPodAffinity {
    fn pre_score(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        if let Some(reason) = affinity_of(pod).and_then(|affinity| affinity.invalid.as_ref()) {
            return Status::error(format!("failed to parse pod: {reason}"));
        }
        let preferences = Preferences::new(cx, pod, i64::from(self.hard_pod_affinity_weight));
        let has_preferences = !preferences.are_empty();
        if self.ignores_preferences_of_others && !has_preferences {
            return Status::skip();
        }
        let mut sums = Sums::new(preferences);
        let nodes = cx.nodes();
        let mut add = |node: &NodeInfo, pods: &[Arc<PodInfo>]| {
            for other in pods {
                sums.add(pod, other, &node.node().labels, 1);
            }
        };
        if has_preferences {
            nodes.iter().for_each(|(_, node)| add(node, node.pods()));
        } else {
            nodes.with_affinity().for_each(|node| add(node, node.pods_with_affinity()));
        }
        let status = if sums.are_idle() { Status::skip() } else { Status::success() };
        // Written even if PreScore skips: the hooks must notice when there is something to score
        // by.
        state.write(Prepared(Arc::new(sums)));
        status
    }
}

pub(super) fn scope(state: &CycleState) -> Scope {
    let Some(prepared) = state.read::<Prepared>() else { return Scope::Node };
    let mut keys = distinct(prepared.keys());
    if !keys.iter().any(|key| **key == *HOSTNAME) {
        return Scope::Domain(keys);
    }
    // There are as many hosts as nodes, but most hosts have the same sum.
    keys.retain(|key| **key != *HOSTNAME);
    Scope::Classes(keys)
}

/// The sum of the node's host.
pub(super) fn class(state: &CycleState, node: &NodeInfo) -> i64 {
    let Some(Prepared(sums)) = state.read() else { return 0 };
    let place = sums.by_key.iter().position(|(key, _)| **key == *HOSTNAME);
    place.map_or(0, |place| sums.get(place, &node.node().labels))
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
        let Prepared(sums) = state.read().ok_or_else(|| Status::error(not_prepared))?;
        let labels = &node.node().labels;
        Ok((0..sums.by_key.len()).map(|place| sums.get(place, labels)).sum())
    }

    fn normalization(&self) -> Normalize {
        Normalize::ByRange
    }

    /// Scales the scores to the whole range; raw scores may be negative.
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
