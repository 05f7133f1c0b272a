//! Required terms: the pod's own, and anti-affinity of existing pods.

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

/// Counts by topology key and domain. Pods use few keys, so lookups scan. A key is present once a
/// counted term uses it, even if no node with a matching pod has the label.
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

/// Something that counts terms.
trait Tally {
    /// Counts a term that matches a pod on a node with these labels.
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

/// Counts of a dry run.
impl Tally for ByKey<DomainCounts> {
    fn tally(&mut self, term: &PodAffinityTerm, labels: &Labels, delta: i64) {
        if let Some(domain) = labels.get(&term.topology_key) {
            self.of_key(&term.topology_key).add(domain, delta);
        }
    }
}

/// Permanent counts, with what their changes can alter.
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
            // The set of labels that answers depend on has changed.
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

    /// Whether a node with these labels is in any domain with a count.
    fn touches(&self, labels: &Labels) -> bool {
        self.0.iter().any(|(key, counts)| labels.get(key).is_some_and(|domain| counts.get(domain) > 0))
    }

    fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(key, _)| key)
    }
}

/// The pod's terms and properties, prepared for matching.
struct Terms {
    spec: Arc<PodSpec>,
    /// By required affinity term.
    affinity: Vec<Namespaces>,
    /// By required anti-affinity term.
    anti_affinity: Vec<Namespaces>,
    /// The pod's namespace object, which terms of other pods select.
    namespace: Option<Arc<Object>>,
}

/// Terms with their resolved namespaces.
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

    /// Whether every affinity term of the pod matches the other pod.
    fn all_match(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        self.affinity().all(|(term, namespaces)| namespaces.matches(term, &pod.namespace, other))
    }

    /// Counts another pod, on a node with these labels, for the terms of this pod.
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

    /// Counts the anti-affinity terms of another pod, on a node with these labels, that match this
    /// pod.
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

/// The state that PreFilter prepares.
#[derive(Clone)]
pub(super) struct Prepared {
    terms: Arc<Terms>,
    /// Pods that all affinity terms of this pod match.
    affine: ByKey<DomainCounts>,
    /// Pods that an anti-affinity term of this pod matches.
    averse: ByKey<DomainCounts>,
    /// Anti-affinity terms of existing pods that match this pod.
    averse_others: ByKey<DomainCounts>,
    /// Whether the pod matches its own affinity terms.
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

    /// Whether no term or count can reject a node.
    fn is_idle(&self) -> bool {
        self.terms.are_empty() && self.averse_others.is_zero()
    }

    /// Whether the pod is the first of its group, which can be placed anywhere.
    fn is_first(&self) -> bool {
        self.is_affine_to_itself && self.affine.is_zero()
    }

    /// Adds or removes a pod of a node in a dry run.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, labels: &Labels, delta: i64) {
        self.terms.tally_others(&mut self.averse_others, pod, changed, labels, delta);
        self.terms.tally_own((&mut self.affine, &mut self.averse), pod, changed, labels, delta);
    }

    /// Adds or removes a pod of a node permanently.
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

    /// The topology keys of all relevant terms.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.affine.keys().chain(self.averse.keys()).chain(self.averse_others.keys())
    }

    /// Whether the pod's affinity terms are satisfied. Without any matching pod in the cluster, the
    /// pod may be the first of its group.
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
