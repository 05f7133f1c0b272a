//! Preferred terms: the pod's own, and those of existing pods.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::node::HOSTNAME;
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{MAX_NODE_SCORE, Normalize, PreScorePlugin, ScorePlugin};
use supercargo_framework::pod_affinity::{PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::{Context, CycleState, Labels, NodeIndex, NodeInfo, PodInfo, SmallMap, Status};

use super::InterPodAffinity;
use super::terms::{List, OwnTerms, Tally, affinity_of, namespace_of};
use crate::applied::Domains;
use crate::domain_counts::{self, ByDomain};

/// The pod's preferences and properties, prepared for matching.
struct Preferences {
    own: OwnTerms,
    /// The weight of required affinity terms of existing pods.
    hard_weight: i64,
    /// The pod's namespace object, which terms of other pods select.
    namespace: Option<Arc<Object>>,
}

/// The state that PreScore prepares: sums of weights by topology key and domain. Only topology keys
/// that nodes have are summed.
#[derive(Clone)]
struct Sums {
    seed: HashSeed,
    preferences: Arc<Preferences>,
    by_key: SmallMap<Arc<str>, ByDomain>,
    /// The number of weights added.
    summands: i64,
    /// Whether a term that counts may have a topology key that the other pod's node lacks.
    has_stray: bool,
}

/// [`Sums`], shared with dry runs, which do not change them.
#[derive(Clone)]
pub(super) struct Prepared(Arc<Sums>);

/// The approximate size of the state in bytes.
pub(super) fn bytes(state: &CycleState) -> usize {
    let Some(Prepared(sums)) = state.read() else { return 0 };
    domain_counts::bytes_by_key(&sums.by_key) + sums.preferences.own.bytes()
}

impl Preferences {
    fn new(cx: &Context<'_>, pod: &PodInfo, hard_weight: i64) -> Self {
        let own = OwnTerms::new(cx, pod, &[List::PreferredNear, List::PreferredAway]);
        Self { own, hard_weight, namespace: namespace_of(cx, pod) }
    }

    /// Visits the terms of another pod that match this one, with their weights.
    fn visit_others(&self, pod: &PodInfo, other: &PodInfo, mut visit: impl FnMut(&PodAffinityTerm, i64)) {
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
    fn new(preferences: Preferences, seed: HashSeed) -> Self {
        let by_key = preferences.own.present().map(|key| (Arc::clone(key), seed.map())).collect();
        Self { seed, preferences: Arc::new(preferences), by_key, summands: 0, has_stray: false }
    }

    /// Whether no weight has been added: then all nodes score equally.
    fn are_idle(&self) -> bool {
        self.summands == 0
    }

    /// Adds to the sum of the domain that a node with these labels is in, if it is in any.
    fn add(&mut self, key: &Arc<str>, labels: &Labels, Tally { terms, weight }: Tally) {
        if let Some(domain) = labels.get(key) {
            let sums = self.by_key.or_insert_with(key, || self.seed.map());
            domain_counts::add(sums, domain, weight);
            self.summands += terms;
        } else {
            self.has_stray = true;
        }
    }

    /// The sum in a domain.
    fn get(&self, key: &str, domain: &str) -> i64 {
        self.by_key.get(key).and_then(|sums| sums.get(domain)).copied().unwrap_or(0)
    }

    /// The sum over all keys. Costs as much as there are labels or keys, whichever are fewer.
    fn total(&self, labels: &Labels) -> i64 {
        if labels.len() < self.by_key.len() {
            return labels.iter().map(|(key, domain)| self.get(key, domain)).sum();
        }
        let sums = self.by_key.iter().filter_map(|(key, sums)| sums.get(labels.get(key)?).copied());
        sums.sum()
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
        let (mut counted, mut has_stray) = (SmallMap::<Arc<str>, Tally>::default(), self.0.has_stray);
        let mut count = |key: &Arc<str>, tally| {
            if labels.get(key).is_some() {
                counted.or_default(key).add(tally);
            } else {
                has_stray = true;
            }
        };
        self.0.preferences.own.visit(changed, &mut count);
        self.0.preferences.visit_others(pod, changed, |term, weight| {
            count(&term.topology_key, Tally { terms: 1, weight });
        });
        if counted.is_empty() && has_stray == self.0.has_stray {
            return Applied::Here;
        }
        let sums = Arc::make_mut(&mut self.0);
        sums.has_stray = has_stray;
        let (was_idle, mut domains) = (sums.are_idle(), Domains::default());
        for (key, Tally { terms, weight }) in &counted {
            if !sums.by_key.contains(key) {
                return Applied::Rebuild;
            }
            sums.add(key, labels, Tally { terms: sign * terms, weight: sign * weight });
            if *weight != 0 {
                domains.add(key);
            }
        }
        if sums.are_idle() == was_idle { domains.into() } else { Applied::Rebuild }
    }

    /// Whether a topology key comes to the nodes with these labels. It is not summed yet.
    pub(super) fn gains(&self, labels: &Labels) -> bool {
        self.0.preferences.own.gain(labels)
    }

    /// Whether the sums depend on a label of a node with pods, which had the label before or not.
    pub(super) fn depends_on(&self, key: &str, was_there: bool) -> bool {
        let sums = &*self.0;
        sums.preferences.own.has_key(key) || sums.by_key.contains(key) || (sums.has_stray && !was_there)
    }
}

impl PreScorePlugin for InterPodAffinity {
    fn pre_score(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        if let Some(reason) = affinity_of(pod).and_then(|affinity| affinity.invalid.as_ref()) {
            return Status::error(format!("failed to parse pod: {reason}"));
        }
        let preferences = Preferences::new(cx, pod, i64::from(self.hard_pod_affinity_weight));
        let has_preferences = !preferences.own.are_empty();
        if self.ignores_preferences_of_others && !has_preferences {
            return Status::skip();
        }
        let mut sums = Sums::new(preferences, cx.hash_seed().clone());
        let preferences = Arc::clone(&sums.preferences);
        let mut add = |node: &NodeInfo, pods: &[Arc<PodInfo>]| {
            let labels = &node.node().labels;
            for other in pods {
                preferences.own.visit(other, |key, counted| sums.add(key, labels, counted));
                preferences.visit_others(pod, other, |term, weight| {
                    sums.add(&term.topology_key, labels, Tally { terms: 1, weight });
                });
            }
        };
        let nodes = cx.nodes();
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
    let Some(Prepared(sums)) = state.read() else { return Scope::Node };
    let mut keys: SmallVec<[Arc<str>; 2]> = sums.by_key.keys().cloned().collect();
    if !sums.by_key.contains(HOSTNAME) {
        return Scope::Domain(keys);
    }
    // There are as many hosts as nodes, but most hosts have the same sum.
    keys.retain(|key| **key != *HOSTNAME);
    Scope::Classes(keys)
}

/// The sum of the node's host.
pub(super) fn class(state: &CycleState, node: &NodeInfo) -> i64 {
    let Some(Prepared(sums)) = state.read() else { return 0 };
    node.node().labels.get(HOSTNAME).map_or(0, |host| sums.get(HOSTNAME, host))
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
        Ok(sums.total(&node.node().labels))
    }

    fn normalization(&self) -> Normalize {
        Normalize::Custom
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
