//! Required terms: the pod's own, and anti-affinity of existing pods.

use std::sync::Arc;

use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin};
use supercargo_framework::pod_affinity::PodAffinityTerm;
use supercargo_framework::{Context, CycleState, Labels, NodeInfo, PodInfo, SmallMap, Status};

use super::InterPodAffinity;
use super::terms::{List, OwnTerms, affinity_of, namespace_of};
use crate::applied::{Domains, join};
use crate::domain_counts::{self, ByDomain, DomainCounts};

const NOT_PREPARED: &str = "error reading \"PreFilterInterPodAffinity\" from cycleState: not found";

/// Counts by topology key and domain, while they are made.
type ByKey = SmallMap<Arc<str>, ByDomain>;

/// Adds to the count of the domain that a node with these labels is in, if it is in any.
fn tally(counts: &mut ByKey, key: &Arc<str>, labels: &Labels, delta: i64, seed: &HashSeed) {
    if let Some(domain) = labels.get(key) {
        domain_counts::add(counts.or_insert_with(key, || seed.map()), domain, delta);
    }
}

/// The pod's terms and properties, prepared for matching.
struct Terms {
    affinity: OwnTerms,
    anti_affinity: OwnTerms,
    /// The pod's namespace object, which terms of other pods select.
    namespace: Option<Arc<Object>>,
}

impl Terms {
    fn new(cx: &Context<'_>, pod: &PodInfo) -> Self {
        Self {
            affinity: OwnTerms::new(cx, pod, &[List::RequiredNear]),
            anti_affinity: OwnTerms::new(cx, pod, &[List::RequiredAway]),
            namespace: namespace_of(cx, pod),
        }
    }

    fn are_empty(&self) -> bool {
        self.affinity.are_empty() && self.anti_affinity.are_empty()
    }

    /// Visits the anti-affinity terms of another pod that match this pod.
    fn visit_others(&self, pod: &PodInfo, other: &PodInfo, visit: impl FnMut(&PodAffinityTerm)) {
        let none = Labels::default();
        let namespace = self.namespace.as_ref().map_or(&none, |namespace| &namespace.labels);
        let theirs = affinity_of(other).map_or(&[][..], |theirs| &theirs.required_anti_affinity);
        let matches =
            |term: &&PodAffinityTerm| term.matches(&other.namespace, &pod.namespace, &pod.labels, namespace);
        theirs.iter().filter(matches).for_each(visit);
    }
}

/// The state that PreFilter prepares. Only topology keys that nodes have are counted.
#[derive(Clone)]
pub(super) struct Prepared {
    terms: Arc<Terms>,
    /// Pods that all affinity terms of this pod match.
    affine: DomainCounts,
    /// Pods that an anti-affinity term of this pod matches.
    averse: DomainCounts,
    /// Anti-affinity terms of existing pods that match this pod.
    averse_others: DomainCounts,
    /// Whether a term that counts may have a topology key that the other pod's node lacks.
    has_stray: bool,
    /// Whether the pod matches its own affinity terms.
    is_affine_to_itself: bool,
}

/// The approximate size of the state in bytes.
pub(super) fn bytes(state: &CycleState) -> usize {
    let Some(prepared) = state.read::<Prepared>() else { return 0 };
    let counts = [&prepared.affine, &prepared.averse, &prepared.averse_others].map(DomainCounts::bytes);
    let terms = [&prepared.terms.affinity, &prepared.terms.anti_affinity].map(OwnTerms::bytes);
    counts.into_iter().chain(terms).sum()
}

impl Prepared {
    fn new(cx: &Context<'_>, pod: &PodInfo) -> Self {
        let terms = Terms::new(cx, pod);
        let (nodes, seed) = (cx.nodes(), cx.hash_seed());
        let (mut averse_others, mut has_stray) = (ByKey::default(), false);
        for node in nodes.with_required_anti_affinity() {
            let labels = &node.node().labels;
            for other in node.pods_with_required_anti_affinity() {
                terms.visit_others(pod, other, |term| {
                    has_stray |= labels.get(&term.topology_key).is_none();
                    tally(&mut averse_others, &term.topology_key, labels, 1, seed);
                });
            }
        }
        let counted = |own: &OwnTerms| {
            if own.are_empty() {
                return DomainCounts::default();
            }
            let mut counts: ByKey = own.present().map(|key| (Arc::clone(key), seed.map())).collect();
            for (_, node) in nodes.iter() {
                let labels = &node.node().labels;
                for other in node.pods() {
                    own.visit(other, |key, counted| tally(&mut counts, key, labels, counted.terms, seed));
                }
            }
            DomainCounts::from(counts)
        };
        Self {
            affine: counted(&terms.affinity),
            averse: counted(&terms.anti_affinity),
            averse_others: averse_others.into(),
            has_stray,
            is_affine_to_itself: terms.affinity.all_match(pod),
            terms: Arc::new(terms),
        }
    }

    /// Whether no term or count can reject a node.
    fn is_idle(&self) -> bool {
        self.terms.are_empty() && self.averse_others.is_zero()
    }

    /// Whether the pod is the first of its group, which can be placed anywhere.
    fn is_first(&self) -> bool {
        self.is_affine_to_itself && self.affine.is_zero()
    }

    /// Visits what another pod counts, each time with the counts that it belongs to.
    fn visit(
        &mut self,
        pod: &PodInfo,
        other: &PodInfo,
        mut visit: impl FnMut(&mut DomainCounts, &Arc<str>, i64),
    ) {
        let Self { terms, affine, averse, averse_others, .. } = self;
        terms.visit_others(pod, other, |term| visit(averse_others, &term.topology_key, 1));
        terms.affinity.visit(other, |key, counted| visit(affine, key, counted.terms));
        terms.anti_affinity.visit(other, |key, counted| visit(averse, key, counted.terms));
    }

    /// Adds or removes a pod of a node in a dry run. Returns whether it counts.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, labels: &Labels, sign: i64) -> bool {
        let mut is_counted = false;
        self.visit(pod, changed, |counts, key, terms| {
            if let Some(domain) = labels.get(key) {
                counts.add(key, domain, sign * terms);
                is_counted = true;
            }
        });
        is_counted
    }

    /// Adds or removes a pod of a node permanently.
    pub(super) fn follow_pod(
        &mut self,
        pod: &PodInfo,
        changed: &PodInfo,
        labels: &Labels,
        sign: i64,
    ) -> Applied {
        let (was_idle, was_first) = (self.is_idle(), self.is_first());
        let (mut domains, mut has_stray) = (Domains::default(), self.has_stray);
        // A new key: the set of labels that answers depend on has changed.
        let mut has_new_key = false;
        self.visit(pod, changed, |counts, key, terms| match labels.get(key) {
            None => has_stray = true,
            Some(domain) => match counts.follow(key, domain, sign * terms) {
                None => has_new_key = true,
                Some(before) if (before > 0) != (before + sign * terms > 0) => domains.add(key),
                Some(_) => {}
            },
        });
        self.has_stray = has_stray;
        if has_new_key || self.is_idle() != was_idle {
            Applied::Rebuild
        } else if self.is_first() != was_first {
            join(domains.into(), Applied::Everywhere)
        } else {
            domains.into()
        }
    }

    /// Whether a topology key comes to the nodes with these labels. It is not counted yet.
    pub(super) fn gains(&self, labels: &Labels) -> bool {
        self.terms.affinity.gain(labels) || self.terms.anti_affinity.gain(labels)
    }

    /// Whether the counts depend on a label of a node with pods, which had the label before or not.
    pub(super) fn depends_on(&self, key: &str, was_there: bool) -> bool {
        self.terms.affinity.has_key(key)
            || self.terms.anti_affinity.has_key(key)
            || self.averse_others.has_key(key)
            || (self.has_stray && !was_there)
    }

    /// The topology keys that verdicts depend on.
    fn keys(&self) -> SmallMap<Arc<str>, ()> {
        // No node is near while a key of an affinity term is absent, and the state does not outlive
        // that.
        let own = self.terms.affinity.present().chain(self.averse.keys());
        own.chain(self.averse_others.keys()).map(|key| (Arc::clone(key), ())).collect()
    }

    /// Whether the pod's affinity terms are satisfied. Without any matching pod in the cluster, the
    /// pod may be the first of its group.
    fn is_near(&self, labels: &Labels) -> bool {
        let mut found = true;
        for key in self.terms.affinity.keys() {
            let Some(domain) = labels.get(key) else {
                return false;
            };
            found &= self.affine.get(key, domain) > 0;
        }
        found || self.is_first()
    }
}

impl PreFilterPlugin for InterPodAffinity {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if let Some(reason) = affinity_of(pod).and_then(|affinity| affinity.invalid.as_ref()) {
            return PreFilter::Reject(Status::unresolvable(format!("parsing pod: {reason}")));
        }
        let prepared = Prepared::new(cx, pod);
        let answer = if prepared.is_idle() { PreFilter::Skip } else { PreFilter::AllNodes };
        // Written even if PreFilter skips: the hooks must notice when there is something to filter
        // by.
        state.write(prepared);
        answer
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for InterPodAffinity {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) -> Status {
        change(state, pod, added, node, 1)
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) -> Status {
        change(state, pod, removed, node, -1)
    }
}

fn change(state: &mut CycleState, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, delta: i64) -> Status {
    let Some(prepared) = state.read_mut::<Prepared>() else {
        return Status::error(NOT_PREPARED);
    };
    if prepared.change(pod, changed, &node.node().labels, delta) { Status::success() } else { Status::skip() }
}

impl FilterPlugin for InterPodAffinity {
    fn filter(&self, _: &Context<'_>, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Status {
        let Some(prepared) = state.read::<Prepared>() else {
            return Status::error(NOT_PREPARED);
        };
        let labels = &node.node().labels;
        if !prepared.is_near(labels) {
            Status::unresolvable("node(s) didn't match pod affinity rules")
        } else if prepared.averse.touches(labels) {
            Status::unschedulable("node(s) didn't match pod anti-affinity rules")
        } else if prepared.averse_others.touches(labels) {
            Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
        } else {
            Status::success()
        }
    }
}

pub(super) fn scope(state: &CycleState) -> Scope {
    let prepared = state.read::<Prepared>();
    prepared.map_or(Scope::Node, |prepared| Scope::Domain(prepared.keys().into_keys().into()))
}
