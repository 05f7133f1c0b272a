//! unschedulablePods: the pods that wait for an event, indexed by what decides whether it helps.
//!
//! An event looks at a group of pods only if a plugin that rejected them registers for it, and asks
//! the hints once for all pods of a class.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::event::HintScope;
use supercargo_framework::pod::{OwnerRef, PodSpec};
use supercargo_framework::requests::PodRequests;
use supercargo_framework::{Labels, PodInfo, Text, Uid};

use super::entry::QueuedPod;
use supercargo_runtime::profile::ProfileIndex;

/// Pods that wait for an event, by sequence number, so that moves keep the order of arrival.
#[derive(Default)]
pub(super) struct Unschedulable {
    pods: BTreeMap<u64, Uid>,
    groups: BTreeMap<Rejection, Group>,
    /// The number of pods that a PreEnqueue plugin holds.
    gated: usize,
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
pub(super) struct Group {
    /// What the hints of these plugins read of a pod.
    scope: HintScope,
    numbers: BTreeMap<Alike, u64>,
    /// By the sequence number of the first pod: an order that does not depend on addresses.
    classes: BTreeMap<u64, Class>,
}

/// Pods of a group that its hints cannot tell apart.
pub(super) struct Class {
    pub(super) priority: i32,
    /// By sequence number.
    pods: BTreeMap<u64, Arc<PodInfo>>,
}

/// What the pods of a class have in common: the priority, and what hints of a scope read.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    priority: i32,
    namespace: Option<Arc<str>>,
    spec: Option<Shared<PodSpec>>,
    requests: Option<Shared<PodRequests>>,
    labels: Option<Labels>,
    controller: Option<Arc<OwnerRef>>,
    uid: Option<Uid>,
}

/// A value compared by its address: pods of one template share it. The address is not reused while
/// this exists.
struct Shared<T>(Arc<T>);

impl Unschedulable {
    /// Adds a pod. `scope` is what the hints of the plugins that rejected it read of a pod.
    pub(super) fn insert(&mut self, entry: &QueuedPod, scope: impl FnOnce() -> HintScope) {
        self.pods.insert(entry.sequence, entry.uid().clone());
        self.gated += usize::from(entry.gating_plugin.is_some());
        self.groups.entry(Rejection::of(entry)).or_insert_with(|| Group::new(scope())).insert(entry);
    }

    /// Removes a pod; `false` if it is not here.
    pub(super) fn remove(&mut self, entry: &QueuedPod) -> bool {
        if self.pods.remove(&entry.sequence).is_none() {
            return false;
        }
        self.gated -= usize::from(entry.gating_plugin.is_some());
        let rejection = Rejection::of(entry);
        if let Some(group) = self.groups.get_mut(&rejection) {
            group.remove(entry);
            if group.classes.is_empty() {
                self.groups.remove(&rejection);
            }
        }
        true
    }

    /// Whether the pod is here.
    pub(super) fn contains(&self, entry: &QueuedPod) -> bool {
        self.pods.contains_key(&entry.sequence)
    }

    /// The pod with a sequence number.
    pub(super) fn uid(&self, sequence: u64) -> Option<&Uid> {
        self.pods.get(&sequence)
    }

    /// The pods in their order of arrival.
    pub(super) fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.pods.values()
    }

    /// Pods by the plugins that rejected them.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// The number of pods that a PreEnqueue plugin holds.
    pub(super) fn gated(&self) -> usize {
        self.gated
    }

    /// The number of pods in all classes, for checks of consistency.
    pub(super) fn count_in_classes(&self) -> usize {
        self.groups().flat_map(Group::classes).map(|class| class.pods.len()).sum()
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
    fn new(scope: HintScope) -> Self {
        Self { scope, numbers: BTreeMap::new(), classes: BTreeMap::new() }
    }

    fn insert(&mut self, entry: &QueuedPod) {
        let number = *self.numbers.entry(Alike::of(&entry.pod, self.scope)).or_insert(entry.sequence);
        let class = self.classes.entry(number);
        let class = class.or_insert_with(|| Class { priority: entry.pod.priority, pods: BTreeMap::new() });
        class.pods.insert(entry.sequence, Arc::clone(&entry.pod));
    }

    fn remove(&mut self, entry: &QueuedPod) {
        let alike = Alike::of(&entry.pod, self.scope);
        if let Some(number) = self.numbers.get(&alike)
            && let Some(class) = self.classes.get_mut(number)
        {
            class.pods.remove(&entry.sequence);
            if class.pods.is_empty() {
                self.classes.remove(number);
                self.numbers.remove(&alike);
            }
        }
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.values()
    }

    /// The sequence number of a pod of the group.
    pub(super) fn any(&self) -> Option<u64> {
        self.classes().flat_map(Class::pods).map(|(sequence, _)| sequence).next()
    }
}

impl Class {
    /// The pods with their sequence numbers, ascending.
    pub(super) fn pods(&self) -> impl Iterator<Item = (u64, &PodInfo)> + Clone {
        self.pods.iter().map(|(sequence, pod)| (*sequence, &**pod))
    }
}

impl Alike {
    fn of(pod: &PodInfo, scope: HintScope) -> Self {
        let (spec, template) = (scope >= HintScope::Spec, scope >= HintScope::Template);
        Self {
            priority: pod.priority,
            namespace: spec.then(|| Arc::clone(&pod.namespace)),
            spec: spec.then(|| Shared(Arc::clone(&pod.spec))),
            requests: pod.status_requests.clone().map(Shared).filter(|_| spec),
            labels: template.then(|| pod.labels.clone()),
            controller: pod.controller.clone().filter(|_| template),
            uid: (scope >= HintScope::Pod).then(|| pod.uid.clone()),
        }
    }
}

impl<T> Ord for Shared<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        Arc::as_ptr(&self.0).cmp(&Arc::as_ptr(&other.0))
    }
}

impl<T> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Shared<T> {}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::{PodBuilder, pod};

    use super::*;

    fn entry(sequence: u64, pod: PodInfo) -> QueuedPod {
        let mut entry = QueuedPod::new(Arc::new(pod), ProfileIndex(0), Timestamp::default());
        entry.sequence = sequence;
        entry.unschedulable_plugins.insert("Fit".into());
        entry
    }

    /// Pods of one template, which differ in what `scope` and lesser ones leave out.
    fn twins(different: fn(PodBuilder, u64) -> PodBuilder) -> Vec<QueuedPod> {
        let spec = Arc::new(pod("a").request("cpu", "9").build().spec.as_ref().clone());
        let twin = |i| PodInfo { spec: Arc::clone(&spec), ..different(pod(&format!("p{i}")), i).build() };
        (0..3).map(|i| entry(i, twin(i))).collect()
    }

    #[test]
    fn pods_share_a_class_if_hints_of_the_scope_read_the_same() {
        let other_spec = |i: u64| entry(9, pod(&format!("q{i}")).request("cpu", "8").build());
        for (scope, labelled, unlabelled) in [
            (HintScope::Event, 1, 1),
            (HintScope::Spec, 2, 2),
            (HintScope::Template, 4, 2),
            (HintScope::Pod, 4, 4),
        ] {
            let count = |pods: Vec<QueuedPod>| {
                let mut unschedulable = Unschedulable::default();
                for pod in pods.iter().chain([&other_spec(0)]) {
                    unschedulable.insert(pod, || scope);
                }
                unschedulable.groups().flat_map(Group::classes).count()
            };
            let label = |pod: PodBuilder, i: u64| pod.label("index", &i.to_string());
            assert_eq!(count(twins(label)), labelled, "{scope:?}");
            assert_eq!(count(twins(|pod, _| pod)), unlabelled, "{scope:?}");
        }
    }

    #[test]
    fn priorities_and_rejecting_plugins_separate_pods() {
        let mut unschedulable = Unschedulable::default();
        let mut pods = twins(|pod, i| pod.priority(i as i32));
        pods[2].pending_plugins.insert("Gang".into());
        for pod in &pods {
            unschedulable.insert(pod, || HintScope::Event);
        }
        let classes: Vec<usize> = unschedulable.groups().map(|group| group.classes().count()).collect();
        assert_eq!(classes, [2, 1]);
    }

    #[test]
    fn nothing_is_left_of_removed_pods() {
        let mut unschedulable = Unschedulable::default();
        let mut pods = twins(|pod, _| pod);
        pods[1].gating_plugin = Some("Gates".into());
        for pod in &pods {
            unschedulable.insert(pod, || HintScope::Spec);
        }
        assert_eq!((unschedulable.len(), unschedulable.gated(), unschedulable.count_in_classes()), (3, 1, 3));
        assert!(pods.iter().all(|pod| unschedulable.remove(pod)));
        assert!(!unschedulable.remove(&pods[0]));
        assert_eq!((unschedulable.len(), unschedulable.gated(), unschedulable.groups().count()), (0, 0, 0));
    }
}
