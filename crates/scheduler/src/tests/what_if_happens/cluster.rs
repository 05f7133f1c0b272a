//! A cluster with an API server and controllers, in which everything happens at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::binding::BindOutcome;
use supercargo_framework::objects::{Body, Object, PodDisruptionBudget, resources};
use supercargo_framework::pod::{OwnerRef, PodStatus};
use supercargo_framework::taint::{Taint, TaintEffect};
use supercargo_framework::testing::object;
use supercargo_framework::{LabelSelector, Labels, NodeRecord, Now, PodInfo, Status, Uid};

use crate::tests::tables::templates::{APP, HOST};
use crate::tests::test_bed::{WALL, all_plugins, options};
use crate::{Effect, Eviction, Input, NoCalls, Notification, Scheduler, StatusPatch, Verb, VictimEviction};

/// How long the cluster may take to come to rest.
const PATIENCE: Duration = Duration::from_mins(10);
/// How many cycles it may take. A pod can preempt another one, in vain, as often as that comes
/// back.
pub(super) const MOST_CYCLES: usize = 2000;

/// What a model does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// Controllers replace no pod.
    ReplacesNothing,
    /// Budgets protect nothing.
    IgnoresBudgets,
    /// Pods are created without their priority.
    ForgetsPriorities,
}

/// The pods that a controller wants.
pub(super) struct Workload {
    pub(super) template: PodInfo,
    pub(super) wanted: usize,
}

/// A cluster in which everything happens at once.
pub(super) struct Cluster {
    pub(super) scheduler: Scheduler,
    pub(super) now: Now,
    pub(super) pods: BTreeMap<Arc<str>, Arc<PodInfo>>,
    pub(super) nodes: BTreeMap<Arc<str>, Arc<NodeRecord>>,
    pub(super) workloads: BTreeMap<Arc<str>, Workload>,
    /// The pods that must stay of those with this label, and what the API says about it.
    pub(super) budgets: BTreeMap<&'static str, (i64, Option<Arc<Object>>)>,
    /// The pod that each replacement stands for.
    pub(super) origins: BTreeMap<Arc<str>, Arc<str>>,
    pub(super) new_nodes: Vec<Arc<str>>,
    /// The pods of nodes that drains left, and failures took.
    pub(super) of_nodes: usize,
    pub(super) held_up: BTreeSet<Arc<str>>,
    pub(super) versions: usize,
    /// Tells new UIDs of one run from those of another.
    pub(super) salt: u64,
    pub(super) mistake: Mistake,
}

/// The number of pods of each owner on each node, or pending.
pub(super) type Placement = BTreeMap<(Arc<str>, Option<Arc<str>>), usize>;

fn kind_of(pod: &PodInfo) -> &str {
    pod.controller.as_ref().map_or("", |owner| &owner.kind)
}

pub(super) fn is_of_node(pod: &PodInfo) -> bool {
    ["DaemonSet", "Node"].contains(&kind_of(pod))
}

/// The controller's name, or that of a pod without one. Copies of a pod count as this pod.
pub(super) fn owner_of(pod: &PodInfo) -> Arc<str> {
    pod.controller.as_ref().map_or_else(|| base_name(&pod.name), |owner| Arc::clone(&owner.name))
}

pub(super) fn base_name(name: &str) -> Arc<str> {
    name.split("-copy-").next().unwrap_or(name).into()
}

pub(super) fn owned(mut pod: PodInfo, kind: &str, name: &str) -> PodInfo {
    let owner = OwnerRef { api_version: "v1".into(), kind: kind.into(), name: name.into(), uid: name.into() };
    pod.controller = Some(Arc::new(owner));
    pod
}

impl Cluster {
    pub(super) fn new(salt: u64) -> Self {
        Self {
            scheduler: Scheduler::new(options(all_plugins(Vec::new()))).unwrap(),
            now: Now { wall: WALL, monotonic: Duration::ZERO },
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            workloads: BTreeMap::new(),
            budgets: BTreeMap::new(),
            origins: BTreeMap::new(),
            new_nodes: Vec::new(),
            of_nodes: 0,
            held_up: BTreeSet::new(),
            versions: 0,
            salt,
            mistake: Mistake::None,
        }
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = Now { wall: self.now.wall.plus(time), monotonic: self.now.monotonic + time };
        self.handle(Input::Tick);
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        format!("{}-{}", self.salt, self.versions)
    }

    /// Runs until nothing is left to do. Says whether that took no longer than it may.
    pub(super) fn rest(&mut self) -> bool {
        let until = self.now.monotonic + PATIENCE;
        let mut cycles = 0;
        loop {
            self.carry_out();
            cycles += 1;
            if cycles > MOST_CYCLES {
                return false;
            }
            if self.scheduler.schedule_one(self.now, &mut NoCalls) {
                continue;
            }
            let [active, backing_off, ..] = self.scheduler.queue_lengths();
            if active + backing_off + self.scheduler.bindings_in_flight() == 0 {
                assert_eq!(self.scheduler.inconsistencies(), Vec::<String>::new());
                return true;
            }
            if self.now.monotonic > until {
                return false;
            }
            self.pass(self.scheduler.next_deadline(self.now).max(Duration::from_millis(1)));
        }
    }

    fn carry_out(&mut self) {
        loop {
            let effects = self.scheduler.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::StartPreBind { pod, .. } => {
                        self.handle(Input::PreBound { pod: pod.uid.clone(), status: Status::success() });
                    }
                    Effect::Bind { pod, node, .. } => self.bind(&pod, &node),
                    Effect::PatchPodStatus(patch) => self.patch(&patch),
                    Effect::Evict { preemption, victims } => self.preempt(preemption, &victims),
                    Effect::Write { pod: Some(pod), .. } => {
                        self.handle(Input::WriteEnded { pod, retry: false });
                    }
                    Effect::ReadPod { pod, .. } => panic!("{pod} is read, but no answer was lost"),
                    Effect::Write { .. }
                    | Effect::CancelPreBind(_)
                    | Effect::PatchGroupStatus(_)
                    | Effect::RecordEvent(_) => {}
                }
            }
        }
    }

    /// The watch may be faster than the answer.
    fn bind(&mut self, pod: &PodInfo, node: &Arc<str>) {
        let answer =
            Input::Bound { pod: pod.uid.clone(), by: "DefaultBinder".into(), outcome: BindOutcome::Bound };
        let started = self.now.wall;
        let change = |pod: &mut PodInfo| {
            pod.node_name = Some(Arc::clone(node));
            pod.status.nominated_node_name = None;
            pod.status.start_time = Some(started);
        };
        if self.versions.is_multiple_of(2) {
            self.handle(answer);
            self.change(&pod.name, change);
        } else {
            self.change(&pod.name, change);
            self.handle(answer);
        }
    }

    fn patch(&mut self, patch: &StatusPatch) {
        if self.pods.get(&patch.pod.name).is_some_and(|pod| pod.uid == patch.uid) {
            self.change(&patch.pod.name, |pod| patch.apply(pod));
        }
    }

    /// A pod changes, and the watch reports it.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut PodInfo)) {
        let old = Arc::clone(&self.pods[name]);
        let mut new = PodInfo::clone(&old);
        change(&mut new);
        new.resource_version = self.version().as_str().into();
        let new = Arc::new(new);
        self.pods.insert(Arc::clone(&new.name), Arc::clone(&new));
        match (old.is_assigned(), new.is_assigned()) {
            (true, _) => self.handle(Input::AssignedPod(Notification::Updated { old, new })),
            (false, false) => self.handle(Input::QueuedPod(Notification::Updated { old, new })),
            (false, true) => {
                self.handle(Input::AssignedPod(Notification::Added(new)));
                self.handle(Input::QueuedPod(Notification::Deleted(old)));
            }
        }
        self.update_budgets();
    }

    /// Victims terminate, and their controllers replace them, before they are gone.
    fn preempt(&mut self, preemption: u64, victims: &[VictimEviction]) {
        for victim in victims {
            self.change(&victim.pod.name, |pod| {
                pod.terminating = true;
                pod.status.disruption_target = victim.condition.clone().map(Box::new);
            });
            self.replace(&victim.pod.name);
        }
        self.handle(Input::Evicted { preemption, outcomes: vec![Eviction::Deleted; victims.len()] });
        for victim in victims {
            self.remove(&victim.pod.name);
        }
    }

    /// A pod is gone.
    fn remove(&mut self, name: &str) {
        let pod = self.pods.remove(name).unwrap();
        let gone = Notification::Deleted(Arc::clone(&pod));
        self.handle(if pod.is_assigned() { Input::AssignedPod(gone) } else { Input::QueuedPod(gone) });
        self.update_budgets();
    }

    /// A pod leaves its node, and its controller replaces it.
    fn evict(&mut self, name: &str) {
        self.remove(name);
        self.replace(name);
    }

    /// The controllers create the pods that are missing: one at most, which stands for this pod.
    fn replace(&mut self, name: &str) {
        if self.mistake == Mistake::ReplacesNothing {
            return;
        }
        let count = |owner: &Arc<str>| {
            self.pods.values().filter(|pod| !pod.terminating && owner_of(pod) == *owner).count()
        };
        let missing = self.workloads.iter().find(|(owner, workload)| count(owner) < workload.wanted);
        let Some((owner, template)) = missing.map(|(owner, it)| (Arc::clone(owner), it.template.clone()))
        else {
            return;
        };
        let new: Arc<str> = format!("{owner}-{}", self.version()).into();
        let origin = self.origins.get(name).cloned().unwrap_or_else(|| name.into());
        self.origins.insert(Arc::clone(&new), origin);
        self.create(PodInfo { name: new, ..template });
    }

    /// A pod comes, with or without a node.
    pub(super) fn create(&mut self, mut pod: PodInfo) {
        let version = self.version();
        pod.uid = Uid::from(format!("{}-{version}", pod.name).as_str());
        pod.resource_version = version.as_str().into();
        if self.mistake == Mistake::ForgetsPriorities {
            pod.priority = 0;
        }
        let pod = Arc::new(pod);
        self.pods.insert(Arc::clone(&pod.name), Arc::clone(&pod));
        let new = Notification::Added(Arc::clone(&pod));
        self.handle(if pod.is_assigned() { Input::AssignedPod(new) } else { Input::QueuedPod(new) });
        self.update_budgets();
    }

    /// Budgets allow what exceeds the pods that must stay.
    fn update_budgets(&mut self) {
        for app in self.budgets.keys().copied().collect::<Vec<_>>() {
            let (_, known) = &self.budgets[app];
            let labels: Labels = [(APP, app)].into_iter().collect();
            let body = PodDisruptionBudget {
                selector: Some(LabelSelector::parse(&labels, []).unwrap()),
                disruptions_allowed: self.allowed(app).max(0) as i32,
                missing_pods: (-self.allowed(app)).max(0) as i32,
                ..PodDisruptionBudget::default()
            };
            let known = known.clone();
            if known.as_ref().is_some_and(|known| known.body == Body::PodDisruptionBudget(body.clone())) {
                continue;
            }
            let key = format!("default/{app}");
            let new = object(&resources::POD_DISRUPTION_BUDGET, &key, Body::PodDisruptionBudget(body));
            let new = Arc::new(Object { resource_version: self.version().as_str().into(), ..new });
            self.budgets.get_mut(app).unwrap().1 = Some(Arc::clone(&new));
            self.handle(Input::Object(match known {
                None => Notification::Added(new),
                Some(old) => Notification::Updated { old, new },
            }));
        }
    }

    fn allowed(&self, app: &str) -> i64 {
        let is_healthy =
            |pod: &&Arc<PodInfo>| pod.is_assigned() && !pod.terminating && is_protected(pod, app);
        self.pods.values().filter(is_healthy).count() as i64 - self.budgets[app].0
    }

    /// The eviction API.
    fn may_be_evicted(&self, pod: &PodInfo) -> bool {
        let apps: Vec<_> = self.budgets.keys().filter(|app| is_protected(pod, app)).collect();
        apps.iter().all(|app| self.allowed(app) > 0) || self.mistake == Mistake::IgnoresBudgets
    }

    pub(super) fn set_node(&mut self, node: NodeRecord) {
        let new = Arc::new(NodeRecord { resource_version: self.version().into(), ..node });
        let old = self.nodes.insert(Arc::clone(&new.name), Arc::clone(&new));
        self.handle(Input::Node(match old {
            None => Notification::Added(new),
            Some(old) => Notification::Updated { old, new },
        }));
    }

    /// The names of the pods on a node. kubectl evicts them in any order: here it is the
    /// scheduler's.
    fn pods_on(&self, node: &str) -> Vec<Arc<str>> {
        let info = self.scheduler.cache().nodes().get(node).unwrap();
        info.pods().iter().map(|pod| Arc::clone(&pod.name)).collect()
    }

    /// The pod that stands for this one now.
    fn present(&self, name: &Arc<str>) -> Option<Arc<str>> {
        let stands = |now: &&Arc<str>| self.origins.get(*now).unwrap_or(*now) == name;
        self.pods.keys().find(stands).cloned()
    }

    /// Applies a change. Says whether the cluster comes to rest.
    pub(super) fn apply(&mut self, verb: &Verb) -> bool {
        match verb {
            Verb::AddNodes { like, count } => (0..*count).for_each(|_| self.add_node(like)),
            Verb::AddPods { like, count } => {
                let Some(like) = self.present(&like.name) else { return false };
                let like = PodInfo::clone(&self.pods[&like]);
                (0..*count).for_each(|_| self.add_pod(&like));
            }
            Verb::Delete(key) => {
                let Some(name) = self.present(&key.name) else { return false };
                if let Some(workload) = self.workloads.get_mut(&owner_of(&self.pods[&name])) {
                    workload.wanted -= 1;
                }
                self.remove(&name);
            }
            Verb::Cordon(name) => self.cordon(name),
            Verb::Uncordon(name) => {
                let mut node = NodeRecord::clone(&self.nodes[name]);
                node.unschedulable = false;
                node.taints = node.taints.iter().filter(|taint| !is_cordon(taint)).cloned().collect();
                self.set_node(node);
            }
            Verb::Drain(names) => return self.drain(names),
            Verb::Fail(names) => self.fail(names),
        }
        self.rest()
    }

    /// A node like this one comes, and its DaemonSets follow at once.
    fn add_node(&mut self, like: &Arc<str>) {
        let name: Arc<str> = format!("another-{}", self.new_nodes.len()).into();
        let of_node = self.pods_on(like);
        let like = NodeRecord::clone(&self.nodes[like]);
        let label = |(key, value): (&Arc<str>, &Arc<str>)| {
            (Arc::clone(key), if **key == *HOST { Arc::clone(&name) } else { Arc::clone(value) })
        };
        let labels = like.labels.iter().map(label).collect();
        let taints = like.taints.iter().filter(|taint| !is_cordon(taint)).cloned().collect();
        let (uid, unschedulable) = (Arc::clone(&name), false);
        self.set_node(NodeRecord { name: Arc::clone(&name), uid, labels, taints, unschedulable, ..like });
        for pod in of_node {
            let pod = PodInfo::clone(&self.pods[&pod]);
            if kind_of(&pod) == "DaemonSet" {
                let own = format!("{}-{name}", owner_of(&pod)).into();
                self.create(PodInfo { name: own, node_name: Some(Arc::clone(&name)), ..pod });
            }
        }
        self.new_nodes.push(name);
    }

    fn add_pod(&mut self, like: &PodInfo) {
        let name = format!("{}-copy-{}", base_name(&like.name), self.version()).into();
        if let Some(workload) = self.workloads.get_mut(&owner_of(like)) {
            workload.wanted += 1;
        }
        let (node_name, status) = (None, PodStatus::default());
        self.create(PodInfo { name, node_name, status, ..like.clone() });
    }

    /// As kubectl and the node controller do it.
    fn cordon(&mut self, name: &Arc<str>) {
        let mut node = NodeRecord::clone(&self.nodes[name]);
        node.unschedulable = true;
        if !node.taints.iter().any(is_cordon) {
            let cordon = Taint { key: CORDON.into(), value: "".into(), effect: TaintEffect::NoSchedule };
            node.taints = node.taints.iter().cloned().chain([cordon]).collect();
        }
        self.set_node(node);
    }

    /// Evictions that a budget forbids are tried again once everything rests.
    fn drain(&mut self, names: &[Arc<str>]) -> bool {
        for name in names {
            self.cordon(name);
        }
        let on_them: Vec<_> = names.iter().flat_map(|name| self.pods_on(name)).collect();
        let (stay, mut left): (Vec<_>, Vec<_>) =
            on_them.into_iter().partition(|pod| is_of_node(&self.pods[pod]));
        self.of_nodes += stay.len();
        loop {
            left.retain(|pod| self.pods.contains_key(pod));
            let before = left.len();
            for pod in std::mem::take(&mut left) {
                if self.may_be_evicted(&self.pods[&pod]) {
                    self.evict(&pod);
                } else {
                    left.push(pod);
                }
            }
            if !self.rest() {
                return false;
            }
            if left.len() == before {
                break;
            }
        }
        self.held_up.extend(left);
        true
    }

    /// The nodes are gone, and then the pods that were on them.
    fn fail(&mut self, names: &[Arc<str>]) {
        let lost: Vec<_> = names.iter().flat_map(|name| self.pods_on(name)).collect();
        for name in names {
            let node = self.nodes.remove(name).unwrap();
            self.handle(Input::Node(Notification::Deleted(node)));
        }
        for pod in &lost {
            if is_of_node(&self.pods[pod]) {
                self.of_nodes += 1;
                self.remove(pod);
            } else {
                self.evict(pod);
            }
        }
    }

    pub(super) fn placement(&self) -> Placement {
        let node = |name: &Arc<str>| match self.new_nodes.iter().position(|new| new == name) {
            Some(number) => new_node(number),
            None => Arc::clone(name),
        };
        let pods = self.pods.values().filter(|pod| !is_of_node(pod));
        counted(pods.map(|pod| (owner_of(pod), pod.node_name.as_ref().map(node))))
    }
}

const CORDON: &str = "node.kubernetes.io/unschedulable";

fn is_cordon(taint: &Taint) -> bool {
    *taint.key == *CORDON
}

fn is_protected(pod: &PodInfo, app: &str) -> bool {
    *pod.namespace == *"default" && pod.labels.get(APP).is_some_and(|label| **label == *app)
}

/// The name of the node that came as this one.
pub(super) fn new_node(number: usize) -> Arc<str> {
    format!("new node {number}").into()
}

pub(super) fn counted(places: impl Iterator<Item = (Arc<str>, Option<Arc<str>>)>) -> Placement {
    let mut counts = Placement::new();
    places.for_each(|place| *counts.entry(place).or_default() += 1);
    counts
}
