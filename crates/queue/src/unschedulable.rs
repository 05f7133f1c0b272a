//! unschedulableEntities: the pods that wait for an event, indexed by what decides whether it
//! helps.
//!
//! An event looks at a group of pods only if a plugin that rejected them registers for it, and asks
//! the hints once for all pods of a class.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::mem::take;
use std::ops::RangeInclusive;
use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::caching::{HintMarks, HintScope, Mark, Wish};
use supercargo_framework::{PodInfo, PodSpec, Text, Uid, steps};

use super::entry::QueuedPod;
use super::hints::{PodReach, Reads};
use super::members::Members;
use super::size::{Amounts, Size};
use super::waiting_groups::WaitingGroups;
use supercargo_framework::hash_seed::{HashSeed, SeededMap};
use supercargo_runtime::profile::ProfileIndex;

/// A pod with more wishes is looked at after every event.
const MOST_WISHES: usize = 256;
/// Classes with a mark are counted up to this number to see which mark is rare.
const MANY: usize = 256;

/// Pods that wait for an event, by sequence number, so that moves keep the order of arrival.
#[derive(Clone)]
pub(crate) struct Unschedulable {
    pods: BTreeMap<u64, Uid>,
    groups: BTreeMap<Rejection, Group>,
    /// The entries of groups of pods. They are in no class: hints are asked about members.
    pub(crate) entities: WaitingGroups,
    /// The number of pods that a PreEnqueue plugin holds.
    gated: usize,
    seed: HashSeed,
}

/// The plugins whose registrations decide which events concern a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rejection {
    profile: ProfileIndex,
    gating_plugin: Option<Text>,
    unschedulable_plugins: BTreeSet<Text>,
    pending_plugins: BTreeSet<Text>,
}

/// Pods that the same plugins rejected.
#[derive(Clone)]
pub(crate) struct Group {
    /// As all hints of these plugins see the pods.
    whole: Index,
    /// As hints that read no labels see them, if others do. The pods of a StatefulSet differ in
    /// labels.
    without_labels: Option<Index>,
    /// The pods with claims, by the key of each claim and by sequence number.
    by_claim: BTreeMap<Box<str>, BTreeMap<u64, Arc<PodInfo>>>,
}

/// The pods of a group as hints of a scope see them.
#[derive(Clone)]
struct Index {
    scope: HintScope,
    /// By size; all of one size if no hint reads requests.
    by_size: BTreeMap<Size, Classes>,
    /// What tells which classes an event may help; nothing if it may help all.
    marks: SmallVec<[HintMarks; 2]>,
    /// The size of each class, by what its pods ask for and by the class's number.
    by_mark: BTreeMap<(Mark, u64), Size>,
    next_class: u64,
}

/// The pods of a group and a size.
#[derive(Clone)]
struct Classes {
    numbers: SeededMap<Seen, u64>,
    /// By number, so that their order does not depend on the hash seed.
    classes: BTreeMap<u64, Class>,
}

/// Pods of a group that its hints cannot tell apart.
#[derive(Clone)]
pub(crate) struct Class {
    pub(crate) priority: i32,
    /// What each pod requests; nothing if no hint reads requests.
    amounts: Amounts,
    /// By sequence number.
    pods: BTreeMap<u64, Arc<PodInfo>>,
    /// What finds the class.
    marks: Box<[Mark]>,
}

/// A pod as hints of a scope see it. Two are equal if their priorities and the parts in the scope
/// are.
#[derive(Clone)]
struct Seen {
    pod: Arc<PodInfo>,
    scope: HintScope,
}

impl Unschedulable {
    pub(crate) fn new(seed: HashSeed) -> Self {
        Self {
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            entities: WaitingGroups::default(),
            gated: 0,
            seed,
        }
    }

    /// Adds a pod, or the entry of a group with its members. `reads` is what the hints of the
    /// plugins that rejected a pod read of it.
    pub(crate) fn insert(
        &mut self,
        entry: &QueuedPod,
        members: Option<&Members>,
        reads: impl FnOnce() -> Reads,
    ) {
        self.pods.insert(entry.sequence, entry.uid().clone());
        self.gated += usize::from(entry.gating_plugin.is_some());
        if let Some(members) = members {
            return self.entities.insert(entry, members);
        }
        let group = self.groups.entry(Rejection::of(entry));
        group.or_insert_with(|| Group::new(reads())).insert(entry, &self.seed);
    }

    /// Removes a pod; `false` if it is not here.
    pub(crate) fn remove(&mut self, entry: &QueuedPod) -> bool {
        if self.pods.remove(&entry.sequence).is_none() {
            return false;
        }
        self.gated -= usize::from(entry.gating_plugin.is_some());
        if entry.group.is_some() {
            self.entities.remove(entry.sequence);
            return true;
        }
        let rejection = Rejection::of(entry);
        if let Some(group) = self.groups.get_mut(&rejection) {
            group.remove(entry);
            if group.whole.by_size.is_empty() {
                self.groups.remove(&rejection);
            }
        }
        true
    }

    /// Whether the pod is here.
    pub(crate) fn contains(&self, entry: &QueuedPod) -> bool {
        self.pods.contains_key(&entry.sequence)
    }

    /// The pod with a sequence number.
    pub(crate) fn uid(&self, sequence: u64) -> Option<&Uid> {
        self.pods.get(&sequence)
    }

    /// The pods in their order of arrival.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods.values()
    }

    /// Pods by the plugins that rejected them.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// The number of pods that a PreEnqueue plugin holds.
    pub(crate) fn gated(&self) -> usize {
        self.gated
    }

    /// Whether both indexes of each group have the same number of pods, and marks of classes that
    /// exist.
    pub(crate) fn indexes_agree(&self) -> bool {
        let agree = |group: &Group| {
            let counts_agree = |index: &Index| index.count() == group.whole.count();
            let mut indexes = std::iter::once(&group.whole).chain(&group.without_labels);
            indexes.all(|index| counts_agree(index) && index.marks_agree())
        };
        self.groups().all(agree)
    }

    /// The number of pods in all classes, for checks of consistency.
    pub(crate) fn count_in_classes(&self) -> usize {
        self.groups().map(|group| group.whole.count()).sum()
    }
}

impl Rejection {
    fn of(entry: &QueuedPod) -> Self {
        Self {
            profile: entry.profile,
            gating_plugin: entry.gating_plugin.clone(),
            unschedulable_plugins: entry.unschedulable_plugins.clone(),
            pending_plugins: entry.pending_plugins.clone(),
        }
    }
}

impl Group {
    fn new(reads: Reads) -> Self {
        let Reads { scope, mut marks } = reads;
        let differs = scope.contains(HintScope::LABELS) && !scope.contains(HintScope::POD);
        // An event whose hints read labels looks at all pods.
        let without_labels = differs.then(|| Index::new(scope - HintScope::LABELS, take(&mut marks)));
        Self { whole: Index::new(scope, marks), without_labels, by_claim: BTreeMap::new() }
    }

    fn insert(&mut self, entry: &QueuedPod, seed: &HashSeed) {
        for claim in claims(&entry.pod) {
            self.by_claim.entry(claim).or_default().insert(entry.sequence, Arc::clone(&entry.pod));
        }
        for index in std::iter::once(&mut self.whole).chain(&mut self.without_labels) {
            index.insert(entry, seed);
        }
    }

    fn remove(&mut self, entry: &QueuedPod) {
        for claim in claims(&entry.pod) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(&entry.sequence);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
        for index in std::iter::once(&mut self.whole).chain(&mut self.without_labels) {
            index.remove(entry);
        }
    }

    pub(crate) fn classes(&self) -> impl Iterator<Item = &Class> {
        self.whole.classes()
    }

    /// The classes as hints of this scope see them that are within reach, and maybe others.
    pub(crate) fn classes_within<'a>(
        &'a self,
        scope: HintScope,
        reach: &'a PodReach,
    ) -> Box<dyn Iterator<Item = &'a Class> + 'a> {
        let without_labels = self.without_labels.as_ref().filter(|_| !scope.contains(HintScope::LABELS));
        let index = without_labels.unwrap_or(&self.whole);
        let asking = if reach.all { None } else { index.asking_for(&reach.brought) };
        let Some(mut asking) = asking else { return Box::new(index.classes()) };
        let fitting = index.fitting(&reach.offers);
        if asking.is_empty() {
            return Box::new(fitting.map(|(_, class)| class));
        }
        asking.extend(fitting);
        Box::new(asking.into_values())
    }

    /// The pods that name a claim, by its key, with their sequence numbers, ascending.
    pub(crate) fn pods_of_claim(&self, key: &str) -> impl Iterator<Item = (u64, &PodInfo)> {
        self.by_claim.get(key).into_iter().flatten().map(|(sequence, pod)| (*sequence, &**pod))
    }

    /// The pods with their sequence numbers.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (u64, &PodInfo)> {
        self.classes().flat_map(Class::pods)
    }
}

impl Index {
    fn new(scope: HintScope, marks: SmallVec<[HintMarks; 2]>) -> Self {
        Self { scope, by_size: BTreeMap::new(), marks, by_mark: BTreeMap::new(), next_class: 0 }
    }

    fn classes(&self) -> impl Iterator<Item = &Class> {
        self.by_size.values().flat_map(|classes| classes.classes.values())
    }

    /// The classes whose pods ask for something of this, by number; `None` if it is quicker to look
    /// at all.
    fn asking_for(&self, brought: &BTreeSet<Mark>) -> Option<BTreeMap<u64, &Class>> {
        if !brought.is_empty() && (self.marks.is_empty() || brought.len() > self.by_mark.len()) {
            return None;
        }
        let found = brought.iter().flat_map(|mark| self.by_mark.range(range(mark)));
        let class = |number, size| self.by_size.get(size)?.classes.get(number);
        Some(found.filter_map(|((_, number), size)| Some((*number, class(number, size)?))).collect())
    }

    /// The classes that fit into one of these offers, by number.
    fn fitting<'a>(&'a self, offers: &'a [Amounts]) -> impl Iterator<Item = (u64, &'a Class)> {
        let is_offered = |may_fit: &dyn Fn(Amounts) -> bool| offers.iter().any(|offer| may_fit(*offer));
        let sizes =
            self.by_size.iter().filter(move |(size, _)| is_offered(&|offer| size.may_fit(offer.size())));
        let classes = sizes.flat_map(|(_, classes)| &classes.classes);
        let fitting = classes.filter(move |(_, class)| is_offered(&|offer| class.amounts.may_fit(offer)));
        fitting.map(|(number, class)| (*number, class))
    }

    /// Whether all marks are those of classes that exist.
    fn marks_agree(&self) -> bool {
        let has = |(_, number): &(Mark, u64), size| {
            self.by_size.get(size).is_some_and(|classes| classes.classes.contains_key(number))
        };
        let marks = self.classes().map(|class| class.marks.len()).sum::<usize>();
        marks == self.by_mark.len() && self.by_mark.iter().all(|(mark, size)| has(mark, size))
    }

    /// What finds a new class of pods: of each wish the marks that the fewest classes have.
    fn marks(&self, pod: &PodInfo) -> BTreeSet<Mark> {
        let wishes: Vec<Wish> = self.marks.iter().flat_map(|marks| (marks.of_pod)(pod)).collect();
        steps::add(wishes.len());
        if wishes.len() > MOST_WISHES {
            return [Mark::Any].into();
        }
        let rarest = |wish: Wish| wish.into_iter().min_by_key(|way| self.classes_with(way));
        wishes.into_iter().filter_map(rarest).flatten().collect()
    }

    /// The number of classes with these marks, up to [`MANY`].
    fn classes_with(&self, marks: &[Mark]) -> usize {
        marks.iter().flat_map(|mark| self.by_mark.range(range(mark))).take(MANY).count()
    }

    /// The number of pods.
    fn count(&self) -> usize {
        self.classes().map(|class| class.pods.len()).sum()
    }

    fn insert(&mut self, entry: &QueuedPod, seed: &HashSeed) {
        let seen = self.seen(&entry.pod);
        let size = seen.amounts().size();
        let new = || Classes { numbers: seed.map(), classes: BTreeMap::new() };
        let Some(number) = self.by_size.entry(size).or_insert_with(new).insert(entry, seen, self.next_class)
        else {
            return;
        };
        self.next_class += 1;
        let marks = self.marks(&entry.pod);
        self.by_mark.extend(marks.iter().map(|mark| ((mark.clone(), number), size)));
        if let Some(class) = self.by_size.get_mut(&size).and_then(|sized| sized.classes.get_mut(&number)) {
            class.marks = marks.into_iter().collect();
        }
    }

    fn remove(&mut self, entry: &QueuedPod) {
        let seen = self.seen(&entry.pod);
        let size = seen.amounts().size();
        let Some(classes) = self.by_size.get_mut(&size) else { return };
        let gone = classes.remove(entry, &seen);
        if classes.classes.is_empty() {
            self.by_size.remove(&size);
        }
        if let Some((number, class)) = gone {
            for mark in class.marks {
                self.by_mark.remove(&(mark, number));
            }
        }
    }

    fn seen(&self, pod: &Arc<PodInfo>) -> Seen {
        Seen { pod: Arc::clone(pod), scope: self.scope }
    }
}

/// The place of a mark in an index.
fn range(mark: &Mark) -> RangeInclusive<(Mark, u64)> {
    (mark.clone(), 0)..=(mark.clone(), u64::MAX)
}

/// The keys of a pod's claims.
pub(crate) fn claims(pod: &PodInfo) -> impl Iterator<Item = Box<str>> {
    pod.claim_names().map(|name| format!("{}/{name}", pod.namespace).into())
}

impl Classes {
    /// Adds a pod to its class, or to a new one with this number; returns that number if it is new.
    fn insert(&mut self, entry: &QueuedPod, seen: Seen, next: u64) -> Option<u64> {
        let amounts = seen.amounts();
        let number = *self.numbers.entry(seen).or_insert(next);
        let class = self.classes.entry(number).or_insert_with(|| Class {
            priority: entry.pod.priority,
            amounts,
            pods: BTreeMap::new(),
            marks: Box::default(),
        });
        class.pods.insert(entry.sequence, Arc::clone(&entry.pod));
        (number == next).then_some(number)
    }

    /// Removes a pod; returns its class if that is left without pods.
    fn remove(&mut self, entry: &QueuedPod, seen: &Seen) -> Option<(u64, Class)> {
        let number = *self.numbers.get(seen)?;
        let class = self.classes.get_mut(&number)?;
        class.pods.remove(&entry.sequence);
        if !class.pods.is_empty() {
            return None;
        }
        self.numbers.remove(seen);
        Some((number, self.classes.remove(&number)?))
    }
}

impl Class {
    /// The pods with their sequence numbers, ascending.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (u64, &PodInfo)> + Clone {
        self.pods.iter().map(|(sequence, pod)| (*sequence, &**pod))
    }
}

impl Seen {
    /// What the pod requests, if a hint may read it.
    fn amounts(&self) -> Amounts {
        let reads_requests = self.scope.intersects(HintScope::REQUESTS | HintScope::POD);
        if reads_requests { Amounts::of(&self.pod.spec.requests.resource) } else { Amounts::default() }
    }

    fn parts(&self) -> impl Hash + Eq {
        let (pod, spec) = (&*self.pod, &*self.pod.spec);
        let reads_all = self.scope.contains(HintScope::POD);
        let reads = |part| !reads_all && self.scope.contains(part);
        (
            pod.priority,
            reads_all.then_some(&pod.uid),
            reads(HintScope::NAMESPACE).then_some(&pod.namespace),
            (reads(HintScope::LABELS) || reads(HintScope::MATCH_LABELS) && matches_labels(spec))
                .then_some(&pod.labels),
            reads(HintScope::CONTROLLER).then_some(&pod.controller),
            reads(HintScope::REQUESTS).then_some((&spec.requests, &pod.status_requests)),
            reads(HintScope::NODE_AFFINITY).then_some((&spec.node_selector, &spec.node_affinity)),
            reads(HintScope::POD_AFFINITY).then_some(&spec.pod_affinity),
            reads(HintScope::TOPOLOGY_SPREAD).then_some(&spec.topology_spread),
            reads(HintScope::TOLERATIONS).then_some(&spec.tolerations),
            reads(HintScope::HOST_PORTS).then_some(&spec.host_ports),
            reads(HintScope::VOLUMES).then_some(&spec.volumes),
        )
    }
}

/// Whether labels of the pod are part of its constraints.
fn matches_labels(spec: &PodSpec) -> bool {
    spec.topology_spread.iter().any(|constraint| !constraint.match_label_keys.is_empty())
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Seen {}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::pod::RareSpec;
    use supercargo_framework::pod_claims::{PodClaim, PodClaimSource};
    use supercargo_framework::testing::{PodBuilder, pod};
    use supercargo_framework::topology_spread::TopologySpreadConstraint;
    use supercargo_framework::{NodeAffinity, TaintEffect, Timestamp, Volume, VolumeSource};

    use super::*;

    fn entry(sequence: u64, pod: PodInfo) -> QueuedPod {
        let mut entry = QueuedPod::new(Arc::new(pod), ProfileIndex(0), Timestamp::default());
        entry.sequence = sequence;
        entry.unschedulable_plugins.insert("Fit".into());
        entry
    }

    fn unschedulable() -> Unschedulable {
        Unschedulable::new(HashSeed::new(1))
    }

    fn pods(differ: fn(PodBuilder, u64) -> PodBuilder) -> Vec<QueuedPod> {
        (0..3).map(|i| entry(i, differ(pod(&format!("p{i}")), i).build())).collect()
    }

    type Change = fn(&mut PodInfo);

    /// A change to each part that a scope can name.
    const CHANGES: [(HintScope, Change); 12] = [
        (HintScope::NAMESPACE, |pod| pod.namespace = "other".into()),
        (HintScope::LABELS, |pod| pod.labels = [("a", "b")].into_iter().collect()),
        (HintScope::CONTROLLER, |pod| pod.controller = Some(Arc::default())),
        (HintScope::REQUESTS, |pod| spec(pod).requests.resource.milli_cpu = 1),
        (HintScope::REQUESTS, |pod| pod.status_requests = Some(Arc::default())),
        (HintScope::NODE_AFFINITY, |pod| spec(pod).node_selector = [("a", "b")].into_iter().collect()),
        (HintScope::NODE_AFFINITY, |pod| spec(pod).node_affinity = Some(NodeAffinity::default())),
        (HintScope::POD_AFFINITY, |pod| spec(pod).pod_affinity = Some(Box::default())),
        (HintScope::TOPOLOGY_SPREAD, |pod| spec(pod).topology_spread = [spread()].into()),
        (HintScope::TOLERATIONS, |pod| spec(pod).tolerations = tolerant().spec.tolerations.clone()),
        (HintScope::HOST_PORTS, |pod| spec(pod).host_ports = with_port().spec.host_ports.clone()),
        (HintScope::VOLUMES, |pod| spec(pod).volumes = [volume()].into()),
    ];

    fn spec(pod: &mut PodInfo) -> &mut PodSpec {
        Arc::make_mut(&mut pod.spec)
    }

    fn tolerant() -> PodInfo {
        pod("p").tolerates("a", "b", TaintEffect::NoSchedule).build()
    }

    fn with_port() -> PodInfo {
        pod("p").host_port(80).build()
    }

    fn spread() -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "zone".into(),
            hard: true,
            selector: None,
            min_domains: None,
            honors_affinity: true,
            honors_taints: true,
            match_label_keys: [].into(),
        }
    }

    fn volume() -> Volume {
        Volume { name: "v".into(), source: VolumeSource::Claim("c".into()) }
    }

    /// The number of classes that hints of a scope see, of pods with a label of their own each.
    fn classes_of_replicas(scope: HintScope, spread: Option<TopologySpreadConstraint>) -> [usize; 2] {
        let mut unschedulable = unschedulable();
        let replicas = pods(|pod, i| pod.label("index", &i.to_string()));
        let replicas: Vec<_> = replicas
            .into_iter()
            .map(|mut replica| {
                let pod = Arc::make_mut(&mut replica.pod);
                Arc::make_mut(&mut pod.spec).topology_spread = spread.clone().into_iter().collect();
                replica
            })
            .collect();
        for replica in &replicas {
            unschedulable.insert(replica, None, || scope.into());
        }
        let count = |unschedulable: &Unschedulable, scope| {
            unschedulable.groups().map(|group| group.classes_within(scope, &PodReach::ALL).count()).sum()
        };
        let counts = [scope, scope - HintScope::LABELS].map(|scope| count(&unschedulable, scope));
        for replica in &replicas {
            assert!(unschedulable.remove(replica));
        }
        assert_eq!(unschedulable.groups().count(), 0);
        counts
    }

    #[test]
    fn replicas_share_a_class_for_hints_that_read_no_labels() {
        let affinity = HintScope::POD_AFFINITY | HintScope::LABELS;
        assert_eq!(classes_of_replicas(affinity, None), [3, 1]);
        let constraints = HintScope::TOPOLOGY_SPREAD | HintScope::MATCH_LABELS;
        assert_eq!(classes_of_replicas(constraints, Some(spread())), [1, 1]);
        let keys = TopologySpreadConstraint { match_label_keys: ["index".into()].into(), ..spread() };
        assert_eq!(classes_of_replicas(constraints, Some(keys)), [3, 3]);
    }

    #[test]
    fn pods_share_a_class_if_the_parts_in_the_scope_are_equal() {
        for scope in HintScope::all().iter().chain([HintScope::empty()]) {
            for (part, change) in CHANGES {
                let mut unschedulable = unschedulable();
                let mut changed = pod("changed").build();
                change(&mut changed);
                for (i, pod) in [pod("plain").build(), changed.clone(), changed].into_iter().enumerate() {
                    unschedulable.insert(&entry(i as u64, pod), None, || scope.into());
                }
                let classes = unschedulable.groups().flat_map(Group::classes).count();
                let expected = 1 + usize::from(scope == part || scope == HintScope::POD);
                assert_eq!(classes, expected, "{part:?} differs, {scope:?} is read");
            }
        }
    }

    #[test]
    fn pods_are_found_by_their_claims_while_they_wait() {
        let with_claim = |name: &str| {
            let claim = PodClaim { name: "c".into(), source: PodClaimSource::Claim(name.into()) };
            let rare = RareSpec { resource_claims: Box::new([claim]), ..RareSpec::default() };
            pod("p").with_spec(|spec| spec.rare = Some(Box::new(rare))).build()
        };
        let mut unschedulable = unschedulable();
        let pods: Vec<_> =
            std::iter::zip(0.., ["a", "b", "a"]).map(|(i, claim)| entry(i, with_claim(claim))).collect();
        for pod in &pods {
            unschedulable.insert(pod, None, || HintScope::POD.into());
        }
        let found = |unschedulable: &Unschedulable, key: &str| {
            let pods = unschedulable.groups().flat_map(|group| group.pods_of_claim(key));
            pods.map(|(sequence, _)| sequence).collect::<Vec<_>>()
        };
        assert_eq!(found(&unschedulable, "default/a"), [0, 2]);
        assert_eq!(found(&unschedulable, "other/a"), [0_u64; 0]);
        unschedulable.remove(&pods[0]);
        assert_eq!(found(&unschedulable, "default/a"), [2]);
        unschedulable.remove(&pods[1]);
        unschedulable.remove(&pods[2]);
        assert_eq!(unschedulable.groups().count(), 0);
    }

    #[test]
    fn the_whole_pod_has_a_class_of_its_own() {
        let mut unschedulable = unschedulable();
        for pod in pods(|pod, _| pod) {
            unschedulable.insert(&pod, None, || (HintScope::POD | HintScope::LABELS).into());
        }
        assert_eq!(unschedulable.groups().flat_map(Group::classes).count(), 3);
    }

    #[test]
    fn a_class_is_found_after_others_are_gone() {
        let mut unschedulable = unschedulable();
        let pods = pods(|pod, i| pod.label("index", &i.to_string()));
        for pod in &pods {
            unschedulable.insert(pod, None, || HintScope::LABELS.into());
        }
        for (i, pod) in pods.iter().enumerate() {
            unschedulable.remove(pod);
            assert_eq!(unschedulable.count_in_classes(), 2 - i);
        }
        assert_eq!(unschedulable.groups().count(), 0);
    }

    #[test]
    fn priorities_and_rejecting_plugins_separate_pods() {
        let mut unschedulable = unschedulable();
        let mut pods = pods(|pod, i| pod.priority(i as i32));
        pods[2].pending_plugins.insert("Gang".into());
        for pod in &pods {
            unschedulable.insert(pod, None, Reads::default);
        }
        let classes: Vec<usize> = unschedulable.groups().map(|group| group.classes().count()).collect();
        assert_eq!(classes, [2, 1]);
    }

    #[test]
    fn nothing_is_left_of_removed_pods() {
        let mut unschedulable = unschedulable();
        let mut pods = pods(|pod, _| pod);
        pods[1].gating_plugin = Some("Gates".into());
        for pod in &pods {
            unschedulable.insert(pod, None, || HintScope::REQUESTS.into());
        }
        assert_eq!((unschedulable.len(), unschedulable.gated(), unschedulable.count_in_classes()), (3, 1, 3));
        assert!(pods.iter().all(|pod| unschedulable.remove(pod)));
        assert!(!unschedulable.remove(&pods[0]));
        assert_eq!((unschedulable.len(), unschedulable.gated(), unschedulable.groups().count()), (0, 0, 0));
    }
}
