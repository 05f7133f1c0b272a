//! Terms that must hold: the pod's own, and the anti-affinity of pods that are there already.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::objects::Object;
use supercargo_framework::plugin::{FilterPlugin, PreFilter, PreFilterExtensions, PreFilterPlugin};
use supercargo_framework::pod_affinity::PodAffinityTerm;
use supercargo_framework::{Context, CycleState, Labels, NodeInfo, PodInfo, PodSpec, Status};

use super::InterPodAffinity;
use super::terms::{Namespaces, affinity_of, namespace_of};
use crate::domain_counts::{self, ByDomain, DomainCounts};

const NOT_PREPARED: &str = "error reading \"PreFilterInterPodAffinity\" from cycleState: not found";

/// Numbers by topology key and domain. Pods name few keys, so a scan finds one.
#[derive(Clone, Default)]
struct ByKey<T>(SmallVec<[(Arc<str>, T); 2]>);

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
    fn add(&mut self, key: &Arc<str>, domain: &Arc<str>, delta: i64);
}

impl Tally for ByKey<ByDomain> {
    fn add(&mut self, key: &Arc<str>, domain: &Arc<str>, delta: i64) {
        domain_counts::add(self.of_key(key), domain, delta);
    }
}

impl Tally for ByKey<DomainCounts> {
    fn add(&mut self, key: &Arc<str>, domain: &Arc<str>, delta: i64) {
        self.of_key(key).add(domain, delta);
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
}

/// Counts a term in the node's domain, if it has one.
fn tally(counts: &mut impl Tally, term: &PodAffinityTerm, node: &NodeInfo, delta: i64) {
    if let Some(domain) = node.node().labels.get(&term.topology_key) {
        counts.add(&term.topology_key, domain, delta);
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

type Paired<'a> = (&'a PodAffinityTerm, &'a Namespaces);

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

    fn affinity(&self) -> impl Iterator<Item = Paired<'_>> {
        let terms = self.spec.pod_affinity.as_ref().map_or(&[][..], |own| &own.required_affinity);
        terms.iter().zip(&self.affinity)
    }

    fn anti_affinity(&self) -> impl Iterator<Item = Paired<'_>> {
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

    /// Counts what another pod on the node means for the terms of this one.
    fn tally_own<T: Tally>(
        &self,
        (affine, averse): (&mut T, &mut T),
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        delta: i64,
    ) {
        if self.all_match(pod, other) {
            self.affinity().for_each(|(term, _)| tally(affine, term, node, delta));
        }
        for (term, namespaces) in self.anti_affinity() {
            if namespaces.matches(term, &pod.namespace, other) {
                tally(averse, term, node, delta);
            }
        }
    }

    /// Counts what the anti-affinity of another pod on the node means for this one.
    fn tally_others(
        &self,
        counts: &mut impl Tally,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        delta: i64,
    ) {
        let none = Labels::default();
        let labels = self.namespace.as_ref().map_or(&none, |namespace| &namespace.labels);
        for term in affinity_of(other).map_or(&[][..], |theirs| &theirs.required_anti_affinity) {
            if term.matches(&other.namespace, pod, labels) {
                tally(counts, term, node, delta);
            }
        }
    }
}

/// What PreFilter prepares.
#[derive(Clone)]
struct Prepared {
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
        let (mut affine, mut averse) = (ByKey::default(), ByKey::default());
        let mut averse_others = ByKey::<ByDomain>::default();
        let nodes = cx.nodes();
        for node in nodes.with_required_anti_affinity() {
            for other in node.pods_with_required_anti_affinity() {
                terms.tally_others(&mut averse_others, pod, other, node, 1);
            }
        }
        if !terms.are_empty() {
            for (_, node) in nodes.iter() {
                for other in node.pods() {
                    terms.tally_own::<ByKey<ByDomain>>((&mut affine, &mut averse), pod, other, node, 1);
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

    /// Works a pod that came to a node, or went, into the counts.
    fn change(&mut self, pod: &PodInfo, changed: &PodInfo, node: &NodeInfo, delta: i64) {
        self.terms.tally_others(&mut self.averse_others, pod, changed, node, delta);
        self.terms.tally_own((&mut self.affine, &mut self.averse), pod, changed, node, delta);
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
        found || (self.is_affine_to_itself && self.affine.is_zero())
    }
}

impl PreFilterPlugin for InterPodAffinity {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if let Some(reason) = affinity_of(pod).and_then(|affinity| affinity.invalid.as_ref()) {
            return PreFilter::Reject(Status::unresolvable(format!("parsing pod: {reason}")));
        }
        let prepared = Prepared::new(cx, pod);
        if prepared.terms.are_empty() && prepared.averse_others.is_zero() {
            return PreFilter::Skip;
        }
        state.write(prepared);
        PreFilter::AllNodes
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
    prepared.change(pod, changed, node, delta);
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
