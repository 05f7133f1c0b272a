//! Terms that must hold: the pod's own, and the anti-affinity of pods that are there already.

use std::iter::Zip;
use std::slice::Iter;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{Applied, Scope};
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin};
use supercargo_framework::pod_affinity::PodAffinityTerm;
use supercargo_framework::{Context, CycleState, Labels, NodeInfo, PodInfo, PodSpec, Status};

use super::InterPodAffinity;
use super::terms::{Namespaces, affinity_of, distinct, namespace_of};
use crate::applied::{in_domain, join, widen};
use crate::domain_counts::{self, ByDomain, DomainCounts};

const NOT_PREPARED: &str = "error reading \"PreFilterInterPodAffinity\" from cycleState: not found";

/// Numbers by topology key and domain. Pods name few keys, so a scan finds one. A key is in here as soon as a term that
/// counts names it, even while no node with such a pod has the label.
#[derive(Clone)]
struct ByKey<T>(SmallVec<[(Arc<str>, T); 2]>);

impl<T> Default for ByKey<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T: Default> ByKey<T> {
    fn of_key(&mut self, key: &Arc<str>) -> &mut T {
        let position = self.0.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.0.push((Arc::clone(key), T::default()));
            self.0.len() - 1
        });
        &mut self.0[position].1
    }
}

/// Where one more, or one less, of something is counted.
trait Tally {
    /// Counts a term that speaks of a pod on a node with these labels.
    fn tally(&mut self, term: &PodAffinityTerm, labels: &Labels, delta: i64);
}

impl Tally for ByKey<ByDomain> {
    fn tally(&mut self, term: &PodAffinityTerm, labels: &Labels, delta: i64) {
        let counts = self.of_key(&term.topology_key);
        if let Some(domain) = labels.get(&term.topology_key) {
            domain_counts::add(counts, domain, delta);
        }
    }
}

/// In a trial.
impl Tally for ByKey<DomainCounts> {
    fn tally(&mut self, term: &PodAffinityTerm, labels: &Labels, delta: i64) {
        if let Some(domain) = labels.get(&term.topology_key) {
            self.of_key(&term.topology_key).add(domain, delta);
        }
    }
}

/// For good.
struct Followed<'a> {
    counts: &'a mut ByKey<DomainCounts>,
    applied: Applied,
}

impl<'a> Followed<'a> {
    fn new(counts: &'a mut ByKey<DomainCounts>) -> Self {
        Self { counts, applied: Applied::Here }
    }
}

impl Tally for Followed<'_> {
    fn tally(&mut self, term: &PodAffinityTerm, labels: &Labels, delta: i64) {
        let key = &term.topology_key;
        let Some((_, counts)) = self.counts.0.iter_mut().find(|(known, _)| known == key) else {
            // What answers depend on is another set of labels now.
            self.applied = Applied::Rebuild;
            return;
        };
        if let Some(domain) = labels.get(key) {
            let before = counts.follow(domain, delta);
            if (before > 0) != (before + delta > 0) {
                widen(&mut self.applied, in_domain(key));
            }
        }
    }
}

impl From<ByKey<ByDomain>> for ByKey<DomainCounts> {
    fn from(counts: ByKey<ByDomain>) -> Self {
        Self(counts.0.into_iter().map(|(key, counts)| (key, counts.into())).collect())
    }
}

impl ByKey<DomainCounts> {
    fn get(&self, key: &str, domain: &str) -> i64 {
        self.0.iter().find(|(known, _)| **known == *key).map_or(0, |(_, counts)| counts.get(domain))
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|(_, counts)| counts.is_zero())
    }

    /// Whether a node with these labels is in any domain that has some.
    fn touches(&self, labels: &Labels) -> bool {
        self.0.iter().any(|(key, counts)| labels.get(key).is_some_and(|domain| counts.get(domain) > 0))
    }

    fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(key, _)| key)
    }
}

/// What the pod asks of others and is to them, ready to be matched.
struct Terms {
    spec: Arc<PodSpec>,
    /// By required affinity term.
    affinity: Vec<Namespaces>,
    /// By required anti-affinity term.
    anti_affinity: Vec<Namespaces>,
    /// The namespace of the pod, by which terms of others select it.
    namespace: Option<Arc<Object>>,
}

/// Terms with their namespaces.
type Pairs<'a> = Zip<Iter<'a, PodAffinityTerm>, Iter<'a, Namespaces>>;

impl Terms {
    fn new(cx: &Context<'_>, pod: &PodInfo) -> Self {
        let look_up = |terms: &[PodAffinityTerm]| terms.iter().map(|term| Namespaces::of(cx, term)).collect();
        let affinity = affinity_of(pod);
        Self {
            spec: Arc::clone(&pod.spec),
            affinity: affinity.map(|own| look_up(&own.required_affinity)).unwrap_or_default(),
            anti_affinity: affinity.map(|own| look_up(&own.required_anti_affinity)).unwrap_or_default(),
            namespace: namespace_of(cx, pod),
        }
    }

    fn affinity(&self) -> Pairs<'_> {
        let terms = self.spec.pod_affinity.as_ref().map_or(&[][..], |own| &own.required_affinity);
        terms.iter().zip(&self.affinity)
    }

    fn anti_affinity(&self) -> Pairs<'_> {
        let terms = self.spec.pod_affinity.as_ref().map_or(&[][..], |own| &own.required_anti_affinity);
        terms.iter().zip(&self.anti_affinity)
    }

    fn are_empty(&self) -> bool {
        self.affinity.is_empty() && self.anti_affinity.is_empty()
    }

    /// Whether the other pod is one that every affinity term of the pod speaks of.
    fn all_match(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        self.affinity().all(|(term, namespaces)| namespaces.matches(term, &pod.namespace, other))
    }

    /// Counts what another pod, on a node with these labels, means for the terms of this one.
    fn tally_own<T: Tally>(
        &self,
        (affine, averse): (&mut T, &mut T),
        pod: &PodInfo,
        other: &PodInfo,
        labels: &Labels,
        delta: i64,
    ) {
        if self.all_match(pod, other) {
            self.affinity().for_each(|(term, _)| affine.tally(term, labels, delta));
        }
        for (term, namespaces) in self.anti_affinity() {
            if namespaces.matches(term, &pod.namespace, other) {
                averse.tally(term, labels, delta);
            }
        }
    }

    /// Counts what the anti-affinity of another pod, on a node with these labels, means for this one.
    fn tally_others(
        &self,
        counts: &mut impl Tally,
        pod: &PodInfo,
        other: &PodInfo,
        labels: &Labels,
        delta: i64,
    ) {
        let none = Labels::default();
        let namespace = self.namespace.as_ref().map_or(&none, |namespace| &namespace.labels);
        for term in affinity_of(other).map_or(&[][..], |theirs| &theirs.required_anti_affinity) {
            if term.matches(&other.namespace, &pod.namespace, &pod.labels, namespace) {
                counts.tally(term, labels, delta);
            }
        }
    }
}

/// What PreFilter prepares.
#[derive(Clone)]
pub(super) struct Prepared {
    terms: Arc<Terms>,
    /// Pods that every affinity term of this one speaks of.
    affine: ByKey<DomainCounts>,
    /// Pods that an anti-affinity term of this one speaks of.
    averse: ByKey<DomainCounts>,
    /// Terms of pods that are there already and want this one away.
    averse_others: ByKey<DomainCounts>,
    /// Whether the pod is itself one that it wants near.
    is_affine_to_itself: bool,
}

impl Prepared {
    fn new(cx: &Context<'_>, pod: &PodInfo) -> Self {
        let terms = Terms::new(cx, pod);
        let (mut affine, mut averse) = (ByKey::<ByDomain>::default(), ByKey::<ByDomain>::default());
        let mut averse_others = ByKey::<ByDomain>::default();
        for (terms, counts) in [(terms.affinity(), &mut affine), (terms.anti_affinity(), &mut averse)] {
            for (term, _) in terms {
                counts.of_key(&term.topology_key);
            }
        }
        let nodes = cx.nodes();
        for node in nodes.with_required_anti_affinity() {
            for other in node.pods_with_required_anti_affinity() {
                terms.tally_others(&mut averse_others, pod, other, &node.node().labels, 1);
            }
        }
        if !terms.are_empty() {
            for (_, node) in nodes.iter() {
                for other in node.pods() {
                    terms.tally_own((&mut affine, &mut averse), pod, other, &node.node().labels, 1);
                }
            }
        }
        Self {
            is_affine_to_itself: terms.all_match(pod, pod),
            terms: Arc::new(terms),
            affine: affine.into(),
            averse: averse.into(),
            averse_others: averse_others.into(),
        }
    }

    /// Whether there is nothing to filter by.
    fn is_idle(&self) -> bool {
        self.terms.are_empty() && self.averse_others.is_zero()
    }

    /// Whether the pod would be the first of its kind, which may be anywhere.
    fn is_first(&self) -> bool {
        self.is_affine_to_itself && self.affine.is_zero()
    }

    /// Works a pod that came to a node, or went, into the counts of a trial.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, labels: &Labels, delta: i64) {
        self.terms.tally_others(&mut self.averse_others, pod, changed, labels, delta);
        self.terms.tally_own((&mut self.affine, &mut self.averse), pod, changed, labels, delta);
    }

    /// Works a pod that came to a node, or went, into the counts for good.
    pub(super) fn follow_pod(
        &mut self,
        pod: &PodInfo,
        changed: &PodInfo,
        labels: &Labels,
        delta: i64,
    ) -> Applied {
        let (was_idle, was_first) = (self.is_idle(), self.is_first());
        let mut affine = Followed::new(&mut self.affine);
        let mut averse = Followed::new(&mut self.averse);
        let mut averse_others = Followed::new(&mut self.averse_others);
        self.terms.tally_others(&mut averse_others, pod, changed, labels, delta);
        self.terms.tally_own((&mut affine, &mut averse), pod, changed, labels, delta);
        let mut applied = affine.applied;
        widen(&mut applied, averse.applied);
        widen(&mut applied, averse_others.applied);
        if self.is_idle() != was_idle {
            Applied::Rebuild
        } else if self.is_first() != was_first {
            join(applied, Applied::Everywhere)
        } else {
            applied
        }
    }

    /// The topology keys of all terms that have a say.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.affine.keys().chain(self.averse.keys()).chain(self.averse_others.keys())
    }

    /// Whether the pods that the pod wants near are. Where there are none in the whole cluster, the pod may be the first of
    /// its kind.
    fn is_near(&self, labels: &Labels) -> bool {
        let mut found = true;
        for (term, _) in self.terms.affinity() {
            let Some(domain) = labels.get(&term.topology_key) else {
                return false;
            };
            found &= self.affine.get(&term.topology_key, domain) > 0;
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
        // Written in either case: what keeps the state current must see when there comes to be something to filter by.
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
    prepared.change(pod, changed, &node.node().labels, delta);
    Status::success()
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
    prepared.map_or(Scope::Node, |prepared| Scope::Domain(distinct(prepared.keys())))
}
